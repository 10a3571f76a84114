"""The arranged output matrix: the same logits, and nothing but its speed changes."""

import copy

import pytest
import torch

from structspec.packed import PackedLinear, pack_output


class Network(torch.nn.Module):
    """Something with an output matrix."""

    def __init__(self, width: int = 8192, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(width, 24, dtype=dtype)
        self.head = torch.nn.Linear(24, width, bias=False, dtype=dtype)
        self.head.weight = self.embedding.weight  # tied

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.head


def plain(network: Network, states: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(states, network.head.weight, network.head.bias)


@pytest.mark.parametrize("shape", [(1, 24), (2, 24), (1, 8, 24), (3, 7, 24), (64, 24), (0, 24)])
def test_logits_are_those_of_the_plain_layer(shape: tuple[int, ...]) -> None:
    network = Network()
    assert pack_output(network)
    states = torch.randn(shape)
    with torch.inference_mode():
        found = network.head(states)
    assert found.shape == (*shape[:-1], 8192)
    torch.testing.assert_close(found, plain(network, states), rtol=1e-5, atol=1e-5)


def test_a_changed_or_replaced_weight_is_seen() -> None:
    network = Network()
    pack_output(network)
    states = torch.randn(4, 24)
    with torch.no_grad():
        network.head(states)
        network.head.weight.mul_(2.0)
        torch.testing.assert_close(network.head(states), plain(network, states))
        network.head.weight = torch.nn.Parameter(torch.randn(8192, 24))
        torch.testing.assert_close(network.head(states), plain(network, states))


def test_gradients_flow_as_before() -> None:
    network = Network()
    pack_output(network)
    states = torch.randn(4, 24, requires_grad=True)
    network.head(states).square().sum().backward()
    assert states.grad is not None and bool(states.grad.abs().sum() > 0)
    assert network.embedding.weight.grad is not None


def test_ties_parameters_and_copies_are_untouched() -> None:
    network = Network()
    before = list(network.state_dict())
    pack_output(network)
    with torch.inference_mode():
        network.head(torch.randn(2, 24))
    assert list(network.state_dict()) == before
    assert network.head.weight is network.embedding.weight
    twin = copy.deepcopy(network)
    with torch.no_grad():
        twin.head.weight.zero_()
        assert not twin.head(torch.randn(2, 24)).any()
        assert network.head(torch.randn(2, 24)).any()


def test_narrow_or_wide_typed_layers_stay_as_they_are() -> None:
    for network in (Network(width=512), Network(dtype=torch.float64)):
        assert not pack_output(network)
        assert type(network.head) is torch.nn.Linear
        assert not isinstance(network.head, PackedLinear)
