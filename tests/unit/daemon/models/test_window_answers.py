"""What local servers say of the size of their models, read with distrust."""

import pytest

from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.window_answers import (
    window_in_props,
    window_in_show,
    windows_in_listing,
    windows_in_running,
    with_windows,
)
from lodger_tools.json_value import JsonObject


def test_llama_cpp() -> None:
    assert window_in_props({"default_generation_settings": {"n_ctx": 4096, "id": 0}, "n_ctx": 9}) == 4096
    assert window_in_props({"error": {"message": "not supported"}}) == 0


def test_lm_studio_counts_only_what_is_loaded() -> None:
    rows: JsonObject = {
        "data": [
            {"id": "a", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 8192},
            {"id": "b", "state": "not-loaded", "max_context_length": 131072},
            "odd",
        ]
    }
    assert windows_in_listing(rows) == {"a": 8192}


def test_ollama() -> None:
    assert windows_in_running({"models": [{"name": "a:latest", "context_length": 4096}, {"name": "b"}]}) == {
        "a:latest": 4096
    }
    trained: JsonObject = {"general.architecture": "llama", "llama.context_length": 2048, "llama.block_count": 30}
    assert window_in_show({"parameters": "stop x\n  num_ctx    8192", "model_info": trained}, 16_384) == 8192
    assert window_in_show({"parameters": "stop x", "model_info": trained}, 16_384) == 2048
    assert window_in_show({"model_info": {"llama.context_length": 131072}}, 16_384) == 0


@pytest.mark.parametrize("value", ["", "-1", "9" * 40, "many", "8192.5"])
def test_a_size_that_is_none_is_left_out(value: str) -> None:
    assert window_in_show({"parameters": f"num_ctx {value}"}, 16_384) == 0


def test_only_named_models_change() -> None:
    models = (ListedModel("a", 0, 5), ListedModel("b", 7))
    assert with_windows(models, {"a": 9, "x": 1}) == (ListedModel("a", 9, 5), ListedModel("b", 7))
