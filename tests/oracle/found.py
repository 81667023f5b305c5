"""Programs that random search found wrong or raising, made small: each is right by now, or refused by name.

Each entry is a text with `inputs()` and `f(...)`, as `strategy.from_source` reads it.
"""

from __future__ import annotations

FOUND = {
    "a_data_alias_of_an_input_counts_its_own_writes": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone().requires_grad_()
    return a[1], a.data

def f(view, data):
    data.select(0, 0).sigmoid_()
    return view * 2, data[1].view(torch.int32).view(torch.float32)
""",
    "a_detached_alias_is_written_and_what_data_returned_gets_a_history": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(2, 2).clone().requires_grad_(),)

def f(x):
    data = x.data
    x.detach().add_(x)
    data.add_(x)
    return data[::2]
""",
    "bits_of_an_intermediate_are_viewed_before_it_is_moved": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).requires_grad_(),)

def f(x):
    y = x * 2
    bits = y.view(torch.int32)[0]
    with torch.no_grad():
        y.transpose_(0, 1)
    return bits, y
""",
    "a_conjugate_and_a_complex_view_are_taken_before_what_they_view_is_moved": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2),)

def f(x):
    y, z = x * 2, torch.complex(x, x + 1)
    number, conjugate = torch.view_as_complex(y), z.conj()
    y.transpose_(0, 1)
    z.transpose_(0, 1)
    return number, y, conjugate, z
""",
    "what_data_returns_counts_its_own_writes": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(2, 2).clone(),)

def f(x):
    alias = x.data
    x.transpose_(0, 1)
    alias.mul_(2)
    y = x * 2
    other = y.data
    other.squeeze_()
    other.sin_()
    return alias, other, y[0]
""",
    "a_leaf_that_is_a_view_is_viewed_and_its_duplicate_is_written": """
def inputs():
    a = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    return a, a

def f(x, same):
    view = x.view(-1)
    with torch.no_grad():
        same.mul_(same)
    return view * 2, view, x * 3
""",
    "something_else_is_written_and_a_view_of_a_leaf_that_is_a_view_is_returned": """
def inputs():
    a = torch.linspace(-1, 1, 6)
    return a[:4].view(2, 2).requires_grad_(), a, a[4:].requires_grad_()

def f(x, whole, rest):
    before = x.view(-1) * 2
    view = x.view(-1)
    with torch.no_grad():
        whole.mul_(2)
        rest.mul_(2)
    return view, before, x.view(-1) * 3
""",
    "a_view_of_an_input_is_written_and_the_caller_writes_it_again": """
def inputs():
    return torch.linspace(-1, 1, 6).reshape(3, 2), torch.ones((), requires_grad=True)

def f(x, w):
    view = x.reshape(-1)
    view.mul_(w)
    return view
""",
    "an_input_is_saved_after_an_alias_of_it_moved": """
def inputs():
    c = torch.linspace(-0.58, 1.02, 4).reshape(4, 1).clone().requires_grad_()
    return c.view_as(c), c, c[:, 0]

def f(view, whole, column):
    with torch.no_grad():
        column.unsqueeze_(0)
    return view * whole
""",
    "a_view_moves_and_a_data_alias_of_it_is_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone().requires_grad_() * 1.5
    return a, a.view(-1), a[0:]

def f(whole, flat, same):
    flat.squeeze_()
    flat.data.mul_(0.5)
    return same[0]
""",
    "an_input_moves_and_a_detached_alias_of_it_is_written": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 9).reshape(3, 3).clone().requires_grad_() * 1.5,)

def f(x):
    alias = x.detach()
    x.unsqueeze_(0)
    alias.mul_(2.0)
    return x.reshape(-1)
""",
    "one_of_two_tangents_is_missing_and_not_contiguous": """
def inputs():
    c = torch.linspace(-0.32, 0.88, 6).reshape(2, 3).clone().requires_grad_()
    return c.data, c.transpose(0, 1)

def f(data, turned):
    y = torch.where(turned > 0, turned, 1.0)
    data.add_(data)
    return turned.sin(), y
""",
    "a_detached_input_is_detached_in_place": """
def inputs():
    b = torch.linspace(-0.97, 1.23, 6).reshape(2, 3).clone().requires_grad_() * 1.5
    return b.as_strided((2,), (2,), 1), b.detach(), b.unsqueeze(1)

def f(part, alias, high):
    alias.copy_(alias)
    with torch.no_grad():
        high.add_(1.5)
    alias.detach_()
    return part, alias.sum()
""",
    "a_member_is_written_through_as_strided": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone().requires_grad_() * 1.5
    return a[...], a

def f(alias, whole):
    last = alias[3]
    alias.as_strided((2,), (2,), 1).sub_(last + 1.0, alpha=0.5)
    return whole
""",
    "a_view_of_what_as_strided_gave_is_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(2, 2).clone().requires_grad_() * 1.5
    return a.reshape(-1), a, a.unsqueeze(0)

def f(flat, whole, high):
    flat.as_strided((2,), (2,), 1).unsqueeze(0).neg_()
    high.add_(1.5)
    return high, whole
""",
    "a_view_of_a_leaf_that_is_a_view_is_written_and_used": """
def inputs():
    return (torch.linspace(-0.84, 1.16, 4).reshape(2, 2).requires_grad_(), torch.ones(2, requires_grad=True))

def f(x, w):
    row = x.select(0, 0)
    early = row * 3.0
    with torch.no_grad():
        row.add_(row)
    late = row * row
    other = x[1]
    with torch.no_grad():
        x.mul_(2.0)
    return early, late, other.sin() * w, x.exp(), x, row[0]
""",
    "a_view_is_read_after_a_move_that_changes_nothing": """
def inputs():
    a = torch.linspace(-0.97, 1.23, 4).requires_grad_() * 1.5
    return (a,)

def f(x):
    view = x.as_strided((2,), (2,), 1)
    with torch.no_grad():
        x.squeeze_()
    view[::2].detach()[0] = 0.5
    return torch.relu(view)
""",
    "one_of_two_names_of_a_tensor_moves_it_and_the_other_is_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone().requires_grad_() * 1.5
    return a, a

def f(x, same):
    x.t_()
    with torch.no_grad():
        same[0] = 0.25
    y = same.exp()
    same.mul_(0.5)
    return y, same, x * 3.0
""",
    "a_detached_alias_gets_other_data": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).requires_grad_() * 1.5
    return a, torch.ones(4)

def f(x, w):
    alias = x.data
    alias.data = w * 3.0
    alias.mul_(x)
    return alias, x
""",
    "a_slice_is_taken_after_an_alias_of_its_memory_was_written_twice": """
def inputs():
    b = torch.linspace(-0.71, 1.09, 8).reshape(2, 2, 2).clone().requires_grad_() * 1.5
    return b, b.detach()

def f(x, alias):
    alias.add_(x)
    alias[0].zero_()
    return x.chunk(2, 2)[0], alias, alias.unsqueeze(0)
""",
    "a_view_is_taken_under_no_grad_after_an_alias_was_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone().requires_grad_()
    return a.unsqueeze(0), a.data, a.transpose(0, 1), torch.ones(1, 4)

def f(x, data, turned, w):
    turned.detach().add_(w)
    with torch.no_grad():
        view = x[:1]
    return view
""",
    "a_gradient_comes_in_that_leads_to_no_input": """
def inputs():
    return (torch.linspace(-0.84, 1.16, 4).reshape(2, 2).requires_grad_(),)

def f(x):
    row = x.select(0, 0)
    with torch.no_grad():
        row.add_(row)
    return row * row, x * 2.0
""",
    "an_input_is_moved_and_viewed_around_a_new_storage": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4),)

def f(x):
    early = x[1:]
    x.unsqueeze_(0)
    high = x[0]
    x.data = x * 3.0
    late = x[:, 1:]
    x.squeeze_()
    last = x[2:]
    x.add_(1.0)
    return early, high, late, last
""",
    "a_leaf_that_is_a_view_is_moved": """
def inputs():
    return torch.linspace(-1.1, 1.3, 6).reshape(3, 2).requires_grad_(), torch.ones(4, requires_grad=True)

def f(x, w):
    with torch.no_grad():
        x.transpose_(0, 1)
    return w * w
""",
    "a_leaf_that_is_a_view_is_written_through_data_after_it_was_viewed": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(2, 2).requires_grad_(),)

def f(x):
    with torch.no_grad():
        x.copy_(x)
    column = x[:, 0]
    data = x.data
    with torch.no_grad():
        data.flatten().mul_(2.0)
    return data, column
""",
    "a_view_gets_other_data_and_stays_inside": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(1, 4).clone(),)

def f(x):
    row = x[:1]
    x.fill_(0.5)
    part = row.select(0, 0)
    row.data = row * 2.0
    return part.unsqueeze(0), part, row * 3.0
""",
    "a_view_gets_another_storage_and_stays_inside": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone().requires_grad_() * 1.5
    return (a,)

def f(x):
    view = x.squeeze()
    view[0] = 0.25
    with torch.no_grad():
        view.set_(view * 2.0)
    return x.exp()
""",
    "a_view_of_another_dtype_is_written_under_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-1.1, 1.3, 4),)

def f(x):
    x.squeeze_()
    x.view(torch.int32).view(torch.float32).mul_(x)
    return x
""",
    "one_of_several_views_where_there_are_fewer_after_a_move": """
def inputs():
    c = torch.linspace(-0.71, 1.09, 9).reshape(3, 3).clone()
    return torch.linspace(-1.1, 1.3, 4).requires_grad_(), c.t(), c.view(-1)

def f(x, p, q):
    p.transpose_(0, 1)
    part = q.unbind(0)[2]
    q.unsqueeze_(0)
    y = part * 2.0
    return {"r0": q.detach(), "r1": part.unsqueeze(0)}
""",
    "a_hook_on_a_view_whose_history_is_out_of_date": """
def inputs():
    c = torch.linspace(-0.45, 0.95, 9).reshape(3, 3).requires_grad_() * 1.5
    return c.t(), c.as_strided((2,), (2,), 1)

def f(p, q):
    y = p.flatten()
    q.unsqueeze_(0)
    p.grad_fn is None or p.register_hook(lambda gradient: gradient * 0.5)
    return y
""",
    "data_is_assigned_under_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-1.1, 1.3, 4).requires_grad_() * 1.5,)

def f(x):
    y = x + 1.0
    x.data = x * 2.0
    return x * y
""",
    "a_result_is_computed_from_a_view_whose_data_alias_is_written": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone().requires_grad_()
    alias = a.data
    return alias, alias, a.view_as(a)

def f(x, same, view):
    y = view + same
    same.add_(x)
    return y.view_as(y)[1]
""",
    "a_piece_is_used_before_its_data_alias_is_written": """
def inputs():
    c = torch.linspace(-0.32, 0.88, 6).requires_grad_()
    return c.data, c.split(1, 0)[3]

def f(data, piece):
    y = torch.where(piece > 0, piece, piece)
    data.squeeze().mul_(y.chunk(2, 0)[0])
    return y.chunk(2, 0)[0]
""",
    "an_input_is_written_and_then_moved_under_no_grad": """
def inputs():
    return (torch.linspace(-0.58, 1.02, 6).reshape(3, 2).clone().requires_grad_() * 1.5,)

def f(x):
    x.mul_(2.0)
    with torch.no_grad():
        x.unsqueeze_(0)
    return x
""",
    "a_leaf_is_moved_under_no_grad_before_it_is_viewed": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).clone().requires_grad_(),)

def f(x):
    with torch.no_grad():
        x.unsqueeze_(0)
    return x[0:] + x.narrow(1, 5, 1)
""",
    "a_result_is_moved_under_no_grad": """
def inputs():
    return (torch.linspace(-0.84, 1.16, 6).clone().requires_grad_(),)

def f(x):
    y = torch.cat([x, x])
    with torch.no_grad():
        y.unsqueeze_(0)
    return y, y
""",
    "a_view_is_moved_and_written_after_the_call": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 6).reshape(3, 2).clone().requires_grad_() * 1.5
    return a.t(), a.t()

def f(x, y):
    x.transpose_(0, 1)
    return torch.view_as_real(torch.view_as_complex(x)), torch.relu(y)
""",
    "an_input_with_a_hook_is_written_and_its_gradient_does_not_come_in": """
def inputs():
    b = torch.linspace(-0.84, 1.16, 6).requires_grad_() * 1.5
    b.register_hook(lambda gradient: gradient * 2.0)
    return torch.ones(4, requires_grad=True), b

def f(x, y):
    total = x.sum()
    y.view(-1).sub_(total, alpha=0.5)
    return total.sin()
""",
    "the_function_hooks_one_of_two_results": """
def inputs():
    a = torch.linspace(-1.1, 1.3, 6).requires_grad_()
    return (a,)

def f(x):
    y = x.sum()
    y.register_hook(lambda gradient: gradient * 0.5)
    return y, x * 0.5
""",
    "an_input_is_moved_and_detached_in_place_under_no_grad": """
context = torch.no_grad

def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(3, 2).requires_grad_() * 1.5,)

def f(x):
    x.transpose_(0, 1)
    x.detach_()
    return x.expand(2, -1, -1)
""",
    "a_view_of_an_alias_by_bytes_is_written_before_its_memory_is_written_under_no_grad": """
def inputs():
    b = torch.linspace(-0.71, 1.09, 4).requires_grad_()
    return b, b.view(torch.int32).view(torch.float32)

def f(x, alias):
    view = alias[...]
    view.mul_(x)
    with torch.no_grad():
        x.view(-1).sub_(alias.clone(), alpha=0.5)
    return view
""",
    "a_detached_alias_leaves_and_what_it_is_an_alias_of_moves": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 3),)

def f(x):
    y = torch.relu(x)
    alias = y.detach()
    view = alias.view_as(alias)
    y.unsqueeze_(0)
    return view, alias
""",
    "an_input_is_made_to_require_grad_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return torch.ones(3), torch.ones(3)

def f(x, y):
    y.requires_grad_()
    return x
""",
    "an_alias_is_written_that_has_another_stride_where_there_is_one_element": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone(),)

def f(x):
    y = x * x
    y.t().mul_(0.5)
    y.detach().sub_(y, alpha=0.5)
    return y
""",
    "a_leaf_is_written_in_inference_mode_beside_a_view": """
context = torch.inference_mode

def inputs():
    return torch.ones(4, requires_grad=True) * 1.5, torch.ones(2, 2, requires_grad=True)

def f(x, leaf):
    y = x.chunk(2, 0)[0]
    leaf[...].fill_(0.5)
    return y
""",
    "a_duplicate_is_made_to_require_grad": """
def inputs():
    x = torch.linspace(-1, 1, 4)
    return x, x

def f(a, b):
    b.requires_grad_()
    return a * 2, b * 3
""",
    "a_duplicate_is_detached_in_place": """
def inputs():
    x = torch.linspace(-1, 1, 4).requires_grad_() * 1.5
    return x, x, torch.ones(4, requires_grad=True)

def f(a, b, w):
    b.detach_()
    return a * w, b * 3
""",
    "an_intermediate_is_given_a_storage_and_stays_inside": """
def inputs():
    return (torch.linspace(-1, 1, 4),)

def f(x):
    t = x * 2
    t.set_(x)
    t.add_(1)
    return x * 3
""",
    "a_transposed_input_is_written_through_as_strided": """
def inputs():
    x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_() * 1.5
    return (x.t(),)

def f(x):
    x.as_strided((2,), (1,), 0).mul_(2)
    return x * 3
""",
    "a_transposed_input_is_written_through_as_strided_and_not_differentiated": """
def inputs():
    x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_() * 1.5
    return (x.t(),)

def f(x):
    with torch.no_grad():
        x.as_strided((2,), (2,), 1).mul_(2)
    return x.detach() * 3
""",
    "a_detached_alias_is_written_beside_the_result_that_it_lies_in": """
def inputs():
    return (torch.linspace(-1, 1, 6).requires_grad_(),)

def f(x):
    doubled = x * 2
    alias = doubled.detach()
    alias.mul_(x)
    return alias, doubled
""",
    "an_input_is_moved_and_detached_in_place": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(3, 2).requires_grad_() * 1.5,)

def f(x):
    x.transpose_(0, 1)
    y = x * 2.0
    x.detach_()
    return y, x
""",
    "a_result_is_transposed_and_back_under_no_grad": """
def inputs():
    a = torch.linspace(-0.84, 1.16, 4).reshape(2, 2).requires_grad_()
    return torch.tensor(-1.1), a * 1.5

def f(x, y):
    y.transpose_(0, 1)
    with torch.no_grad():
        y.t_()
    return x.clone()
""",
    "a_view_of_a_leaf_that_is_a_view_is_squeezed_after_its_use_where_nothing_is_to_squeeze": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(6).requires_grad_().select(0, 2),)

def f(x):
    y = x + 1.0
    with torch.no_grad():
        x.squeeze_()
    return y
""",
}

# name -> (why it is refused, the program)
