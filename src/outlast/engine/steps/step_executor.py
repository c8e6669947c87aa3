"""StepExecutor: the user's step functions, run outside the workflow once their intent is durable.

A body runs on the program's own loop, in a thread if it is a plain function, or in a process of its
own if it must be possible to kill it. What it returns or raises becomes an `Outcome` for the run.

Threads for plain steps. They are daemons: a step that never ends must not keep its process from ending.

Python joins the threads of `ThreadPoolExecutor` when the interpreter ends, whatever they do, so that a program
with one runaway step would never exit. A daemon thread ends with its process; its run has been handed back then.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.replay.error_text import told
from outlast.engine.steps.crash_isolation import CrashIsolation
from outlast.engine.steps.subprocess import Order, call_in_process
from outlast.errors import StepTimeout, WorkflowMisuse
from outlast.ports.clock import Clock, LeapingClock
from outlast.ports.codec import Codec


def always() -> bool:
    """What never ends: a lease that does not run out, leave to stay."""
    return True


class StepContext(Struct, frozen=True):
    """What a step may know of itself while it runs."""

    run_id: str
    uid: str
    key: str
    attempt: int
    progress: Raw | None
    report: Callable[[Raw], None]
    codec: Codec
    life: str = ""
    """The uid under which the step was first asked for, if the run was retried since."""
    held: Callable[[], bool] = always
    """Whether the lease under which it runs has not run out, as far as this process knows."""

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this step, also after the run was retried, and for nothing
        else: pass it on to whatever the step calls."""
        return f"{self.life or self.uid}/{self.key}"


MAX_THREADS = 1_000
UNSURE_SECONDS = 0.05
GRACE_SECONDS = 8.0
"""How long a process that is to end waits for steps in threads."""

PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})
"""What most steps return, and what needs no second look."""

in_threads: dict[object, str] = {}
"""What runs in threads of this process, for messages, also if no run waits for it any more."""

step_context: ContextVar[StepContext] = ContextVar("outlast_step")
step_connection: ContextVar[Any] = ContextVar("outlast_connection")


def self_cancelled(step: StepDefinition) -> RuntimeError:
    """What a step has come to that was cancelled and that nobody has cut off."""
    return RuntimeError(
        f"step {step.name!r} cancelled itself: it has cancelled its own task, or awaited one that was"
    )


class Outcome(Struct, frozen=True):
    """What became of one attempt: an encoded value, or an error."""

    output: Raw | None
    error: BaseException | None
    duration_ns: int
    value: Any = None
    """The value as a replay would see it."""


class StepExecutor:
    """Runs attempts of steps. Holds nothing but what is under way."""

    def __init__(
        self,
        codec: Codec,
        clock: Clock,
        *,
        grace: float = GRACE_SECONDS,
        threads: Executor | None = None,
    ) -> None:
        self.grace = grace
        self._codec = codec
        self.clock = clock
        self.isolation = CrashIsolation(clock)
        # A thread that hangs must not keep the others from beginning: there are always more.
        self._threads = threads or DaemonThreads(MAX_THREADS, "outlast-step")
        self._leaping = clock if isinstance(clock, LeapingClock) else None

    async def attempt(
        self,
        step: StepDefinition,
        context: StepContext,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Outcome:
        """One attempt: the function's value in its recorded form, or what it raised. A process
        that stood still past its lease begins nothing until it knows that nobody else has."""
        while not context.held():
            await self.clock.sleep(UNSURE_SECONDS)
        began = self.clock.monotonic()
        token = step_context.set(context)
        output: Raw | None = None
        back: Any = None
        error: BaseException | None = None
        try:
            if self._leaping is None:
                call = self._call(step, context, args, kwargs)
            else:
                call = self._call_and_tell(self._leaping, step, context, args, kwargs)
            value = await (call if step.timeout is None else self._limited(step, call))
            output, back = step.signature.roundtrip_result(self._codec, value)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # by us, or by the step: who has begun it knows
            error = self_cancelled(step)
        except GeneratorExit as raised:
            if step_context.get(None) is not context:
                raise  # this coroutine is closed, by the loop that ends or by the garbage collector
            error = raised
        except BaseException as raised:  # noqa: BLE001 - whatever a user raises is an outcome
            error = raised
        finally:
            step_context.reset(token)
        elapsed = int((self.clock.monotonic() - began) * 1e9)
        return Outcome(output, error, elapsed, back)

    async def _call_elsewhere(
        self, step: StepDefinition, context: StepContext, args: Any, kwargs: Any
    ) -> Any:
        """The function's value, from a process that knows JSON and no transforms."""
        stored, plain = self._codec, getattr(self._codec, "codec", self._codec)
        input, _, _ = step.signature.encode_call(plain, args, kwargs)
        progress = context.progress
        if progress is not None and plain is not stored:
            progress = plain.encode(stored.decode(progress))

        def report(details: Raw) -> None:
            same = plain is stored
            context.report(details if same else stored.encode(plain.decode(details)))

        order = Order(
            run_id=context.run_id,
            uid=context.life or context.uid,
            key=context.key,
            attempt=context.attempt,
            input=input,
            progress=progress,
        )
        return step.signature.decode_result(plain, await call_in_process(step, order, report))

    def _call(
        self, step: StepDefinition, context: StepContext, args: Any, kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        if step.process:
            return self._call_elsewhere(step, context, args, kwargs)
        return call_body(step, args, kwargs, self._threads)

    async def _call_and_tell(
        self,
        clock: LeapingClock,
        step: StepDefinition,
        context: StepContext,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """The same; a clock that leaps is told that it is under way."""
        async with clock.attempt(context, elsewhere=step.process or not step.is_async):
            return await self._call(step, context, args, kwargs)

    async def _limited(self, step: StepDefinition, call: Coroutine[Any, Any, Any]) -> Any:
        assert step.timeout is not None
        # Measured on the injected clock, so that a test can let the time pass.
        body = asyncio.ensure_future(call)
        limit = asyncio.ensure_future(self.clock.sleep(step.timeout))
        try:
            await asyncio.wait((body, limit), return_when=asyncio.FIRST_COMPLETED)
            if body.done():
                return body.result()
            raise StepTimeout(f"step {step.name!r} did not end within {step.timeout} s")
        finally:
            limit.cancel()
            if not body.done():
                body.cancel()
                await asyncio.wait((body,))


def _in_thread(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    me = object()
    context = step_context.get(None)
    in_threads[me] = (
        function.__name__ if context is None else f"{context.key} of run {context.run_id}"
    )
    try:
        return function(*args, **kwargs)
    except (StopIteration, GeneratorExit) as odd:
        # No future takes the first, and the second ends what waits for this thread.
        raise RuntimeError(f"{function.__name__} raised {type(odd).__name__}") from odd
    finally:
        in_threads.pop(me, None)


async def call_body(
    step: StepDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], threads: Executor
) -> Any:
    """Call a step's function, in a thread if it is a plain one."""
    try:
        if step.is_async:
            value = await step.function(*args, **kwargs)
        else:
            context = copy_context()
            call = lambda: context.run(_in_thread, step.function, args, kwargs)  # noqa: E731
            # A connection may belong to a thread, and then so does what is done with it.
            own = getattr(step_connection.get(None), "threads", threads)
            value = await asyncio.get_running_loop().run_in_executor(own, call)
    except (SystemExit, KeyboardInterrupt) as exit:
        # asyncio would raise it out of the loop: it would end this process, and every process that
        # tries the step again. Ctrl-C reaches no body: asyncio.run cancels its main task instead.
        raise RuntimeError(
            f"step {step.name!r} wanted to end its process ({told(exit)}): raise an Exception instead"
        ) from exit
    if type(value) not in PLAIN and (hasattr(value, "__next__") or hasattr(value, "__anext__")):
        raise WorkflowMisuse(
            f"step {step.name!r} returned a generator, which cannot be recorded: return a list"
        )
    return value


IDLE_SECONDS = 10.0
"""How long a thread that has nothing to do waits for something."""

T = TypeVar("T")
_Call = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """Runs each call at once, in a thread that is idle or a new one, up to `most`; more calls wait."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._idle = self._waiting = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting += 1
            begin = self._waiting > self._idle and self._threads < self._most
            self._threads += begin
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        if begin:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                # Not the caller's: what a thread does belongs to the call that it is given.
                contextvars.Context().run(thread.start)
            except BaseException as error:
                with self._lock:
                    self._threads -= 1
                # No room for another thread: the call waits for one that is there.
                if not self._threads or not isinstance(error, RuntimeError):
                    raise
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                    if self._waiting <= self._idle:
                        self._threads -= 1
                        return
                continue
            with self._lock:
                self._idle -= 1
                self._waiting -= 1
            _run(*call)
            del call  # a thread that waits holds nothing


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is the outcome of the call
        future.set_exception(error)
    else:
        future.set_result(result)
