"""Programs that random search found wrong or raising, made small, and that are refused: each by which name."""

from __future__ import annotations

FOUND_REFUSED = {
    "a_part_of_a_storage_is_written_through_as_strided": (
        "as_strided in a chain of views",
        """
def inputs():
    whole = torch.linspace(-0.84, 1.16, 12).reshape(3, 4).clone().requires_grad_() * 1.5
    return (whole.narrow(0, 1, 2),)

def f(x):
    x.as_strided((2,), (2,), 5).mul_(0.5)
    return x.sin()
""",
    ),
    "an_argument_without_a_gradient_is_given_one_through_as_strided": (
        "as_strided in a chain of views",
        """
def inputs():
    whole = torch.linspace(-1.1, 1.3, 8).requires_grad_() * 1.5
    return whole.narrow(0, 4, 1), whole.narrow(0, 2, 6).detach()

def f(x, alias):
    alias.as_strided((2, 2), (2, 1), 2).sub_(x.clone())
    return x * 1
""",
    ),
    "a_leaf_of_one_element_is_moved_and_written": (
        "metadata op on a view",
        """
def inputs():
    return (torch.tensor(0.3).requires_grad_(),)

def f(x):
    with torch.no_grad():
        x.unsqueeze_(0)
        x.sub_(x, alpha=0.5)
    return x.relu()
""",
    ),
    "a_square_view_moves_under_no_grad_and_is_used": (
        "metadata op on a view",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 9).reshape(3, 3).clone().requires_grad_(),)

def f(x):
    view = x.transpose(1, 1)
    with torch.no_grad():
        view.t_()
    return view.contiguous() * 1
""",
    ),
    "a_view_gets_other_data": (
        "data is assigned",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone().requires_grad_(),)

def f(x):
    part = x.data.split(1, 0)[1]
    part.data = part * 2.0
    return part, x
""",
    ),
    "what_was_viewed_gets_other_data": (
        "data is assigned",
        """
def inputs():
    return torch.linspace(-1.1, 1.3, 4), torch.ones(4)

def f(x, w):
    y = x * 2.0
    part = y[1:]
    y.data = w * 3.0
    return part, y
""",
    ),
    "an_input_is_given_a_history_and_then_other_data": (
        "data is assigned",
        """
def inputs():
    return torch.linspace(-1.1, 1.3, 4).requires_grad_() * 1.5, torch.linspace(-0.9, 1.1, 4).requires_grad_()

def f(x, w):
    x.sub_(w, alpha=0.5)
    x.data = x * 2.0
    return x * 3.0
""",
    ),
    "a_view_is_written_and_then_made_smaller": (
        "resized after a write",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(4),)

def f(x):
    x.sigmoid_()
    x.resize_(2)
    return x * 2.0
""",
    ),
    "an_input_is_written_and_given_another_storage": (
        "old storage is written",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4)[1:],)

def f(x):
    x.sin_()
    with torch.no_grad():
        x.set_(x * 2.0)
    return x[1:]
""",
    ),
    "a_view_is_read_under_autograd_in_its_new_storage": (
        "alias is given another storage",
        """
def inputs():
    return torch.linspace(-1.1, 1.3, 4).requires_grad_(), torch.ones(3)

def f(x, w):
    view = x[1:]
    with torch.no_grad():
        view.set_(w * 3.0)
    return view * view, x * 3.0
""",
    ),
    "a_view_is_given_another_storage": (
        "alias is given another storage",
        """
def inputs():
    return (torch.ones(()),)

def f(x):
    view = x[...]
    view.set_(view * 2.0)
    return view
""",
    ),
    "a_view_is_written_after_its_input_got_another_storage": (
        "old storage is written",
        """
def inputs():
    return (torch.ones(3, 2),)

def f(x):
    view = x.view(-1)
    x.set_(x * 2.0)
    view.zero_()
    return view
""",
    ),
    "a_saved_alias_is_overwritten": (
        "gradient needs an overwritten value",
        """
def inputs():
    a = torch.ones(())
    return a, a.detach(), torch.ones(2, 3, requires_grad=True)

def f(x, alias, w):
    y = w * x
    alias.view(-1).add_(1.0)
    return y.view(-1)
""",
    ),
    "a_resized_input_shares_memory": (
        "view is resized",
        """
def inputs():
    a = torch.ones(())
    return a.view_as(a), a[...]

def f(x, y):
    x.resize_(2)
    y.zero_()
    return y
""",
    ),
    "a_complex_view_is_taken_before_what_it_views_is_moved": (
        "metadata op on a view",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).requires_grad_(),)

def f(x):
    y = x * 2
    number = torch.view_as_complex(y)
    with torch.no_grad():
        y.transpose_(0, 1)
    return number, y
""",
    ),
    "a_write_through_as_strided_is_outside_of_the_argument": (
        "as_strided in a chain of views",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 12).reshape(3, 4).select(0, 2),)

def f(x):
    x.as_strided((2,), (2,), 9).mul_(2)
    return x * 2
""",
    ),
    "a_part_of_an_expanded_input_is_written": (
        "overlapping write",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).expand(2, -1),)

def f(x):
    x.unbind(0)[0][0] = 0.25
    return x * 2
""",
    ),
    "a_leaf_that_is_a_view_has_a_detached_alias_that_moves": (
        "leaf that is a view",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(2, 3).requires_grad_(),)

def f(x):
    alias = x.detach()
    view = x[::2]
    alias.t_()
    return view
""",
    ),
    "a_view_that_moved_is_used_as_the_same_argument_again": (
        "metadata op on a view",
        """
def inputs():
    b = torch.linspace(-0.97, 1.23, 6).reshape(2, 3).requires_grad_() * 1.5
    column = b[:, 1]
    return column, column, b.reshape(-1)

def f(x, same, whole):
    x.unsqueeze_(0)
    y = same.clone()
    same.narrow(1, 0, 2).mul_(0.5)
    return y
""",
    ),
    "an_intermediate_is_given_the_storage_of_an_input_and_returned": (
        "alias is given another storage",
        """
def inputs():
    return (torch.linspace(-1, 1, 4),)

def f(x):
    t = x * 2
    t.set_(x)
    x.add_(1)
    return t
""",
    ),
    "an_intermediate_is_given_a_part_of_a_result": (
        "alias is given another storage",
        """
def inputs():
    return (torch.linspace(-1, 1, 4),)

def f(x):
    t, y, z = x * 2, x * 3, x * 4
    z.set_(y[1:])
    t.set_(z)
    y.add_(1)
    return t, y
""",
    ),
    "a_view_is_set_to_what_it_is_a_view_of": (
        "alias is given another storage",
        """
def inputs():
    x = torch.linspace(-1, 1, 4)
    return x, x[1:3]

def f(x, y):
    y.set_(x)
    return y * 2
""",
    ),
    "an_input_is_set_to_a_view_of_itself": (
        "alias is given another storage",
        """
def inputs():
    x = torch.linspace(-1, 1, 4)
    return x, x[1:3]

def f(x, y):
    x.set_(y)
    return x * 2
""",
    ),
    "a_tensor_is_given_a_storage_by_itself": (
        "storage is an argument",
        """
def inputs():
    return (torch.linspace(-1, 1, 4),)

def f(x):
    t = x * 2
    t.set_(x.untyped_storage(), 1, (2,), (1,))
    return t
""",
    ),
    "an_argument_is_swapped_with_a_result": (
        "tensors are swapped",
        """
def inputs():
    return (torch.linspace(-1, 1, 4),)

def f(x):
    t = x * 2
    torch.utils.swap_tensors(t, x)
    return t
""",
    ),
    "a_view_whose_base_is_given_another_shape_is_read": (
        "metadata op on a view",
        """
def inputs():
    return (torch.linspace(-1, 1, 4).requires_grad_(),)

def f(x):
    t = x * x
    part = t.select(0, 1)
    t.unsqueeze_(0)
    return t, x + part
""",
    ),
    "a_view_of_a_leaf_is_given_another_storage_and_used": (
        "set_ before a write",
        """
def inputs():
    a = torch.linspace(-1.1, 1.3, 12).reshape(2, 3, 2).requires_grad_()
    return (a.clone().narrow(1, 2, 1),)

def f(x):
    with torch.no_grad():
        x.set_(x * 2)
    return x.sin()
""",
    ),
    "a_view_with_gaps_is_resized_and_written": (
        "resized after a write",
        """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).view(2, 2)
    return a[:, 0], a

def f(x, whole):
    x.resize_(1, 2)
    x.mul_(2)
    return whole + 1
""",
    ),
    "a_view_of_what_has_another_shape_by_then_is_written_with_a_history": (
        "metadata op on a view",
        """
def inputs():
    return torch.linspace(-1.1, 1.3, 8).view(2, 2, 2), torch.tensor(0.5, requires_grad=True)

def f(x, scale):
    total = x.sum(0)
    row = total[:1]
    total.unsqueeze_(0)
    row.mul_(scale)
    return total
""",
    ),
    "a_view_is_written_after_the_tensor_that_it_is_a_view_of_was_transposed": (
        "metadata op on a view",
        """
def inputs():
    x = torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone().requires_grad_() * 1.5
    return x, x.data, x[...]

def f(x, data, view):
    x.transpose_(0, 1)
    view.sub_(view, alpha=0.5)
    return view
""",
    ),
    "an_argument_is_transposed_made_a_leaf_and_used": (
        "metadata op on a view",
        """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(2, 3),)

def f(x):
    x.transpose_(0, 1)
    x.requires_grad_()
    return x * 2
""",
    ),
    "a_view_has_a_hook_inside_and_is_then_written": (
        "hook on an alias",
        """
def inputs():
    return ((torch.linspace(-1.1, 1.3, 4).reshape(4).requires_grad_() * 1.5).view(2, 2),)

def f(x):
    x.register_hook(lambda gradient: gradient * 0.5)
    before = x.flatten()
    x.view(-1).add_(before.clone())
    return x
""",
    ),
    "a_view_is_used_after_its_base_is_made_to_require_grad": (
        "requires_grad changes",
        """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone()
    return a.view_as(a), a

def f(view, base):
    view.squeeze_()
    base.requires_grad_()
    return view.t().sin(), base.cos()
""",
    ),
    "a_view_of_a_view_is_returned_whose_base_is_then_made_to_require_grad": (
        "requires_grad changes",
        """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone()
    return a.view_as(a), a

def f(view, base):
    result = view.t()
    base.requires_grad_()
    return result
""",
    ),
    "a_complex_view_of_a_view_is_used_after_the_view_was_transposed_and_written": (
        "metadata op on a view",
        """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(2, 2).requires_grad_() * 1.5
    return (a.as_strided((2, 2), (2, 1), 0),)

def f(x):
    y = torch.view_as_real(torch.view_as_complex(x))
    x.transpose_(0, 1)
    x.mul_(3)
    return y.t() * 2, x.exp()
""",
    ),
    "a_view_of_what_is_detached_afterwards_is_returned": (
        "stale view",
        """
def inputs():
    return (torch.linspace(-1, 1, 4).requires_grad_() * 1.5,)

def f(x):
    total = x.sum()
    view = total.unsqueeze(0)
    view.squeeze_()
    total.detach_()
    return view, view[...]
""",
    ),
}
