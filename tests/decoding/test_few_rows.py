"""Layers for few rows: the sums of the plain layer for any shape, and nothing else changes."""

from __future__ import annotations

import copy
import itertools
import threading

import pytest
import torch

from structspec import few_rows
from structspec.linear import MOST_ROWS, FewRowsLinear, product, use_few_rows


class Network(torch.nn.Module):
    """An embedding tied to an output matrix, and a layer with a bias between them."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(300, 24, dtype=dtype)
        self.middle = torch.nn.Linear(24, 24, dtype=dtype)
        self.head = torch.nn.Linear(24, 300, bias=False, dtype=dtype)
        self.head.weight = self.embedding.weight  # tied

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(states))


def plain(network: Network, states: torch.Tensor) -> torch.Tensor:
    linear = torch.nn.functional.linear
    return linear(linear(states, network.middle.weight, network.middle.bias), network.head.weight)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 7, 64, 577])
def test_sums_are_those_of_a_plain_product(width: int, threads: int) -> None:
    torch.manual_seed(width)
    if few_rows._parallel() is None and threads > 1:
        pytest.skip("this torch brings no OpenMP library")
    for count, height in itertools.product((1, 2, 7, 8, 9, 16, 21), (1, 3, 4, 97, 2100)):
        rows, matrix = torch.randn(count, width), torch.randn(height, width)
        found = few_rows.multiply(rows, matrix, threads)
        expected = rows.double() @ matrix.double().T
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_row_does_not_depend_on_the_others_or_on_the_threads() -> None:
    torch.manual_seed(0)
    rows, matrix = torch.randn(20, 96), torch.randn(500, 96)
    whole = few_rows.multiply(rows, matrix, 1)
    if few_rows._parallel() is not None:
        assert torch.equal(few_rows.multiply(rows, matrix, 2), whole)
    for first, last in ((0, 2), (3, 9), (5, 20)):
        assert torch.equal(few_rows.multiply(rows[first:last], matrix, 1), whole[first:last])


def test_nan_and_infinity_keep_their_meaning() -> None:
    matrix = torch.ones(5, 32)
    rows = torch.zeros(2, 32)
    rows[0, 3], rows[1, 4] = float("nan"), float("inf")
    found = few_rows.multiply(rows, matrix, 1)
    assert found[0].isnan().all() and (found[1] == float("inf")).all()
    rows[1, 5] = float("-inf")
    assert few_rows.multiply(rows, matrix, 1)[1].isnan().all()


def test_many_threads_multiply_at_once() -> None:
    torch.manual_seed(0)
    rows, matrix = torch.randn(8, 256), torch.randn(3000, 256)
    expected = few_rows.multiply(rows, matrix, 1)
    wrong = []

    def work() -> None:
        for _ in range(20):
            if not torch.equal(few_rows.multiply(rows, matrix, few_rows.most_threads()), expected):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize(
    "shape", [(1, 24), (24,), (1, 8, 24), (3, 7, 24), (MOST_ROWS + 1, 24), (0, 24), (2, 0, 24)]
)
def test_a_layer_answers_as_before(shape: tuple[int, ...]) -> None:
    network = Network()
    assert use_few_rows(network) == 2
    states = torch.randn(shape)
    with torch.inference_mode():
        found = network(states)
    assert found.shape == (*shape[:-1], 300)
    torch.testing.assert_close(found, plain(network, states), rtol=1e-5, atol=1e-5)
    if len(shape) > 1:
        turned = torch.randn(24, 5).T  # not contiguous
        with torch.inference_mode():
            torch.testing.assert_close(network(turned), plain(network, turned))


def test_our_loops_are_used_for_few_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        "structspec.linear.multiply",
        lambda rows, matrix, threads: seen.append(len(rows)) or rows @ matrix.T,
    )
    network = Network()
    use_few_rows(network)
    with torch.inference_mode():
        for count in (1, 8, MOST_ROWS, MOST_ROWS + 1):
            network(torch.randn(count, 24))
    assert seen == [1, 1, 8, 8, MOST_ROWS, MOST_ROWS]


def test_a_changed_or_replaced_weight_is_seen() -> None:
    network = Network()
    use_few_rows(network)
    states = torch.randn(4, 24)
    with torch.no_grad():
        network.head.weight.mul_(2.0)
        torch.testing.assert_close(network(states), plain(network, states))
        network.head.weight = torch.nn.Parameter(torch.randn(300, 24))
        torch.testing.assert_close(network(states), plain(network, states))
        network.head.weight = torch.nn.Parameter(torch.randn(24, 300).T)  # not contiguous
        torch.testing.assert_close(network(states), plain(network, states))


def test_a_wrong_width_is_torchs_own_error() -> None:
    network = Network()
    use_few_rows(network)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="shapes"):
        network(torch.randn(2, 23))


def test_gradients_flow_as_before() -> None:
    network = Network()
    use_few_rows(network)
    states = torch.randn(4, 24, requires_grad=True)
    network(states).square().sum().backward()
    assert states.grad is not None and bool(states.grad.abs().sum() > 0)
    assert network.embedding.weight.grad is not None


def test_ties_parameters_and_copies_are_untouched() -> None:
    network = Network()
    before = list(network.state_dict())
    use_few_rows(network)
    assert list(network.state_dict()) == before
    assert network.head.weight is network.embedding.weight
    twin = copy.deepcopy(network)
    with torch.no_grad():
        twin.head.weight.zero_()
        assert not twin(torch.randn(2, 24)).any()
        assert network(torch.randn(2, 24)).any()


def test_layers_of_other_types_stay_as_they_are() -> None:
    network = Network(dtype=torch.float64)
    assert use_few_rows(network) == 0
    assert not isinstance(network.head, FewRowsLinear)
    network = Network()
    use_few_rows(network)
    wider = network.double()  # changed afterwards: torch's product
    with torch.inference_mode():
        assert wider(torch.randn(2, 24, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, 4, 11, MOST_ROWS, MOST_ROWS + 1])
def test_a_plain_layer_that_we_call_is_quick_too(count: int, bias: bool) -> None:
    layer = torch.nn.Linear(37, 29, bias=bias)
    x = torch.randn(count, 37)
    with torch.inference_mode():
        torch.testing.assert_close(product(layer, x), layer(x))
        torch.testing.assert_close(product(layer, x[:, None]), layer(x)[:, None])
        torch.testing.assert_close(product(layer, x.T.contiguous().T), layer(x))


def test_layers_that_something_else_must_see_are_called() -> None:
    layer = torch.nn.Linear(8, 4)
    product(layer, torch.randn(2, 8)).sum().backward()
    assert layer.weight.grad is not None
    layer.register_forward_hook(lambda module, args, output: output + 1)
    with torch.inference_mode():
        x = torch.randn(2, 8)
        torch.testing.assert_close(product(layer, x), layer(x))
