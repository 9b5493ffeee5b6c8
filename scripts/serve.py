"""Translate sentences in a browser:  python scripts/serve.py run=results/default/letters/…

Only this machine can open the page, unless host says otherwise. Several runs answer side by side.
Each word of an answer shows where the model attended when it wrote the word.
"""

from pathlib import Path

from wawa_transformer.run.script import script

from omegaconf import DictConfig
from werkzeug.serving import make_server

from wawa_transformer.common.messages import UserError
from wawa_transformer.decode.strategies import build_strategy
from wawa_transformer.lesson.serve import RequestHandler, Served, application
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model, open_trained

LOCAL = ["127.0.0.1", "localhost"]


@script("serve")
def main(config: DictConfig) -> None:
    run, model, tokenizer, _ = open_trained(config)
    served = [Served(run, model, tokenizer)]
    device = next(model.parameters()).device
    for directory in config.against:
        other = Run.at(Path(directory), "against")
        served.append(Served(other, *load_model(other, config.checkpoint, device)[:2]))
    app = application(served, build_strategy(config), LOCAL if config.host in LOCAL else None)
    try:
        server = make_server(
            config.host, config.port, app, threaded=True, request_handler=RequestHandler
        )
    except (OSError, SystemExit, OverflowError) as error:
        raise UserError(
            f"host={config.host} port={config.port} cannot be used ({error}); give another port."
        ) from None
    print(f"http://{config.host}:{server.port}/  (Ctrl-C ends)", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
