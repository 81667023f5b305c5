"""Random programs on a leaf that is a view, or on a view of one, that were wrong or refused once; see
aotviz/tracing/views_of_no_grad_bases.py. Each is the text of a module without its import of torch."""

FOUND_LEAF_VIEWS = {
    "a_view_of_a_leaf_that_is_a_view_is_read_after_a_write": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(2, 2).requires_grad_()
    return a.view(torch.int32).view(torch.float32), a.transpose(0, 1)

def f(x, turned):
    x.detach().sin_()
    return turned.t() * 0.5
""",
    "a_view_of_a_leaf_that_is_a_view_is_read_after_another_was_moved": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 12).reshape(3, 4).requires_grad_()
    return a[0], a[1]

def f(x, y):
    with torch.no_grad():
        y.unsqueeze_(0)
    return x * 0.5
""",
    "a_view_of_a_leaf_that_is_a_view_is_written_unseen": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 12).reshape(3, 4).requires_grad_()
    return (a.narrow(1, 3, 1),)

def f(x):
    x.unsqueeze(2).detach()[0] = 0.25
    return x.t() * 0.5
""",
    "what_a_leaf_is_a_view_of_is_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 6)
    return a, a.view(2, 3).requires_grad_()

def f(whole, x):
    view = x.view(-1)
    whole.mul_(2)
    return view * 3
""",
    "a_detached_alias_of_a_leaf_that_is_a_view_is_written_between_two_views": """
def inputs():
    x = torch.linspace(-1.1, 1.3, 6).view(2, 3).requires_grad_()
    return x, x.detach()

def f(x, alias):
    first, second = x[0], x[1]
    alias.view(-1)[1:3].mul_(2)
    return second[1:] * 3
""",
    "another_half_of_what_two_leaves_are_views_of_is_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 6)
    x, y = a[:3].requires_grad_(), a[3:].requires_grad_()
    return x, y, y

def f(x, y, same):
    view = x[1:]
    with torch.no_grad():
        same.mul_(2)
    return view * 3
""",
    "a_view_of_a_leaf_that_is_a_view_is_written_unseen_between_uses": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[2:],)

def f(x):
    before = x * 3
    with torch.no_grad():
        x.clamp_(min=-0.2)
    between = x * 4
    with torch.no_grad():
        x[0].neg_()
    return before, between, x[1] * 5, x[0]
""",
    "two_views_of_a_leaf_that_is_a_view_overlap_and_one_is_written_unseen": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x[1:3], x[2:],)

def f(x, y, z):
    before = y * 3 + z
    with torch.no_grad():
        x.neg_()
    between = z * 2
    with torch.no_grad():
        y[0].mul_(2)
    return before, x[0], y * 2, between, z * 5
""",
    "an_alias_of_a_leaf_that_is_a_view_is_written_and_three_views_are_used": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x[2:], x[1:3], x.detach()[:2],)

def f(x, y, z, alias):
    before = y * 3 + z + x
    alias[0].mul_(2)
    return before, y * 2, z * 2, x * 2, z[0], x[0], y[0]
""",
    "a_leaf_that_is_a_view_and_a_view_of_it_that_is_written_unseen": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x,)

def f(part, x):
    before = part * 3
    view = x[0]
    with torch.no_grad():
        part.neg_()
    return before, x * 2, view * 2, part[0]
""",
    "a_leaf_that_is_a_view_is_written_and_its_view_used": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x,)

def f(part, x):
    before = part * 3
    with torch.no_grad():
        x.neg_()
    return before, part * 2, part[0], x[0]
""",
    "what_is_taken_under_no_grad_of_two_views_of_a_leaf_that_is_a_view": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x[1:3], x[2:],)

def f(x, y, z):
    with torch.no_grad():
        first, second = y[0], x[1]
        second.mul_(3)
    return first, x[0], y * 2, z * 5, second
""",
    "nothing_of_a_view_of_a_leaf_that_is_a_view_is_written": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x[2:],)

def f(x, y):
    before, view = x * 3, x[0]
    with torch.no_grad():
        y[:0].mul_(2)
    return before, x * 2, view, view * 1
""",
    "a_view_of_a_leaf_that_is_a_view_is_passed_twice_and_written_unseen": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return (x[:2], x[:2],)

def f(x, same):
    before, view = x * 3, x[0]
    with torch.no_grad():
        same.add_(1)
    return before, x * 2, view, view * 1, same * 2, x.view(-1)
""",
    "an_alias_of_a_view_of_a_leaf_that_is_a_view_is_moved_which_counts_and_writes_nothing": """
def inputs():
    x = torch.linspace(-1.1, 1.3, 8).reshape(4, 2).requires_grad_()
    return x[:, 0], x[:, 0]

def f(x, same):
    result = x + same
    same.view(torch.int32).view(torch.float32).unsqueeze_(0)
    return result
""",
    "a_view_of_a_leaf_that_is_a_view_is_taken_before_an_alias_is_moved_to_where_it_lies_and_another_after_it": """
def inputs():
    x = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).requires_grad_()
    return x, x.detach()

def f(x, alias):
    thin, before = alias.transpose(0, 1), x.t()
    thin.squeeze_()
    return before, x.t(), x.sin()
""",
    "a_view_of_a_view_of_a_leaf_that_is_a_view_is_turned_and_turned_back_before_it_is_used": """
def inputs():
    return torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).requires_grad_()[1],

def f(x):
    with torch.no_grad():
        x.t_().t_()
    return x.sin()
""",
    "a_list_operator_writes_the_other_half_of_what_two_leaves_are_views_of": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 6)
    return a[:3].requires_grad_(), a[3:].requires_grad_()

def f(x, y):
    view = x[1:]
    with torch.no_grad():
        torch._foreach_mul_([y], 2)
    return view * 3, x * 2
""",
    "a_list_operator_writes_a_part_of_a_view_of_a_leaf_that_is_a_view": """
def inputs():
    x = torch.linspace(-0.45, 0.95, 8).reshape(4, 2).requires_grad_()
    return x[:2], x[2:]

def f(x, y):
    before, view = x * 3, x[0]
    with torch.no_grad():
        torch._foreach_add_([x[1:], y], 2)
    return before, view * 2, x * 4
""",
    "two_views_of_a_leaf_that_is_a_view_under_no_grad_one_is_written_and_an_inference_block_follows": """
context = torch.no_grad

def inputs():
    a = torch.linspace(-1.1, 1.3, 8).reshape(4, 2).requires_grad_()
    return a[:1], a[:1], torch.ones(2)

def f(x, y, z):
    x.mul_(0.5)
    with torch.inference_mode():
        z[0] = 0.25
    return y.exp(), z
""",
    "a_view_of_a_view_of_a_leaf_that_is_a_view_is_taken_under_no_grad_and_used": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(2, 2).requires_grad_(),)

def f(x):
    row = x[0]
    with torch.no_grad():
        flat = row.view(-1)
    return flat.sin(), flat
""",
    "a_view_of_a_leaf_that_is_a_view_is_resized_with_no_grad_around_the_call": """
context = torch.no_grad

def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(4, 1).requires_grad_(),)

def f(x):
    rows = x[::2]
    rows.resize_(1, 2)
    return rows * 2, x * x
""",
}
