"""Random programs on views of inputs, or on inputs that are views, that raised raw errors or were wrong once.

Each is the text of a module without its import of torch.
"""

from __future__ import annotations

FOUND_VIEWS = {
    "an_alias_made_by_as_strided_is_narrowed_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone(),)

def f(x):
    return x.as_strided((2, 2), (2, 1), 0).detach().narrow(1, 1, 1)
""",
    "a_transposed_alias_made_by_as_strided_is_reshaped_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone(),)

def f(x):
    return x.as_strided((2, 2), (1, 2), 0).reshape(4) * 2
""",
    "a_complex_view_of_a_view_is_used_after_the_view_was_transposed": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(2, 2).requires_grad_() * 1.5
    return (a.as_strided((2, 2), (2, 1), 0),)

def f(x):
    y = torch.view_as_real(torch.view_as_complex(x))
    x.transpose_(0, 1)
    return y.t() * 2, x.exp()
""",
    "a_view_is_squeezed_before_its_base_is_made_to_require_grad": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone()
    return a.view_as(a), a.view_as(a), a

def f(view, other, base):
    view.squeeze_()
    base.requires_grad_()
    unused = other.sin()
    return base.exp(), view.view(2, 2)
""",
    "an_input_is_resized_before_it_is_made_to_require_grad": """
def inputs():
    return torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone(), torch.linspace(-1, 1, 3).requires_grad_()

def f(x, y):
    x.t_()
    x.mul_(2)
    x.resize_(6)
    x.requires_grad_()
    return x.view(3, 2), y.sin()
""",
    "an_input_is_resized_there_and_back_before_it_is_made_to_require_grad": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone(),)

def f(x):
    x.resize_(6)
    x.resize_(2, 3)
    x.requires_grad_()
    return x.exp(), x
""",
    "a_view_of_a_leaf_that_is_a_view_is_resized": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(1, 4).requires_grad_(),)

def f(x):
    with torch.no_grad():
        view = x.squeeze()
    view.resize_(4, 1)
    return view, view * 2, x.sin()
""",
    "a_part_of_a_view_of_a_leaf_that_is_a_view_is_written_and_resized": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 8).reshape(4, 2).requires_grad_()
    return a.select(1, 0), a.narrow(1, 0, 1)

def f(x, y):
    with torch.no_grad():
        part = x.split(1)[2]
    part.detach().mul_(0.5)
    part.resize_(1, 1)
    return y.sin(), part, x
""",
    "a_leaf_that_is_a_view_is_reshaped_and_written_before_a_view_of_it_is_returned": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 1).reshape(()).requires_grad_(),)

def f(x):
    with torch.no_grad():
        x.unsqueeze_(0)
        x.mul_(2)
    return x[0]
""",
    "a_leaf_that_is_a_view_is_passed_twice_and_reshaped": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 1).reshape(()).requires_grad_()
    return a, a

def f(x, y):
    with torch.no_grad():
        x.unsqueeze_(0)
    with torch.inference_mode():
        x.view_as(x).mul_(y)
    return y, x.unbind(0)[0], x
""",
    "parts_of_a_view_that_was_taken_in_inference_mode_are_used_after_a_write": """
def inputs():
    return (torch.linspace(-0.84, 1.16, 6).reshape(6).requires_grad_(),)

def f(x):
    with torch.inference_mode():
        wide = x.expand(2, -1)
    parts = wide.split(1)
    parts[1].detach().mul_(0.5)
    return wide, parts[0][:1], x
""",
    "what_is_made_in_inference_mode_is_detached_and_transposed_outside": """
def inputs():
    return (torch.linspace(-1.10, 1.30, 4).reshape(1, 4),)

def f(x):
    with torch.inference_mode():
        y = x.t() * 0.5
    z = y.detach()
    z.transpose_(0, 1)
    return z
""",
    "the_base_of_an_argument_is_transposed_after_a_write_to_both": """
def inputs():
    x = torch.linspace(-0.97, 1.23, 6).reshape(2, 3).requires_grad_() * 1.5
    return x[:1], x

def f(part, whole):
    part.neg_()
    whole.transpose_(0, 1)
    return torch.cat([whole, whole]), part * 2
""",
    "a_view_of_a_view_is_unsqueezed_before_a_gradient_is_taken_inside": """
def inputs():
    return (torch.linspace(-1.10, 1.30, 6).requires_grad_().narrow(0, 5, 1),)

def f(x):
    y = x.narrow(0, 0, 1)
    with torch.no_grad():
        y.unsqueeze_(0)
    torch.autograd.grad((x * 2.0).sin().sum(), x, create_graph=True)
    return y
""",
}
