"""StepExecutor: calls step functions outside the workflow, once their intent is durable.

A step function runs on the program's event loop; a plain `def` runs in a thread; with ``process=True`` it runs in a
process that can be killed. What it returns or raises becomes an `Outcome`.

The threads are daemons (`DaemonThreads`). Python joins the threads of a `ThreadPoolExecutor` when the interpreter ends,
so a program with one step that never returns could not exit. A daemon thread ends with its process; by then the
engine has handed the run back.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.replay.error_text import describe, shown
from outlast.engine.steps.crash_isolation import CrashIsolation
from outlast.engine.steps.subprocess import Order, ProcessStepFailed, call_in_process
from outlast.errors import StepTimeout, WorkflowMisuse
from outlast.ports.clock import Clock, LeapingClock
from outlast.ports.codec import Codec

log = logging.getLogger("outlast.runs")


def always() -> bool:
    """The default of conditions: a lease that does not expire, for example."""
    return True


def ignore() -> None:
    """The default of callbacks."""


class StepContext(Struct, frozen=True):
    """What a running step can read about itself."""

    run_id: str
    uid: str
    key: str
    attempt: int
    progress: Raw | None
    report: Callable[[Raw], None]
    codec: Codec
    life: str = ""
    """The uid of the life that first requested the step, if the run was retried since."""
    lease_held: Callable[[], bool] = always
    """Whether the lease under which it runs has not expired, by the clock of this process."""
    on_never_called: Callable[[], None] = ignore
    """Called if the attempt is cancelled before its function was called, while it waits for a thread or the lease."""

    @property
    def idempotency_key(self) -> str:
        """Unique to this step and the same for all its attempts, also after the run was retried: pass it to the
        services that the step calls."""
        return f"{self.life or self.uid}/{self.key}"


MAX_THREADS = 1_000
LEASE_POLL_S = 0.05
GRACE_S = 8.0
"""How long a process that stops waits for steps in threads."""

PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})
"""Types of results that are not generators: most results."""

in_threads: dict[object, str] = {}
"""The steps that run in threads of this process, for log lines, also those that no run waits for any more."""

step_context: ContextVar[StepContext] = ContextVar("outlast_step")
step_connection: ContextVar[Any] = ContextVar("outlast_connection")


def self_cancelled(step: StepDefinition) -> RuntimeError:
    """The error of a step that was cancelled, though the engine did not cancel it."""
    return RuntimeError(
        f"step {step.name!r} cancelled itself: it has cancelled its own task, or awaited one that was"
    )


class Outcome(Struct, frozen=True):
    """The outcome of one attempt: an encoded value or an error."""

    output: Raw | None
    error: BaseException | None
    duration_ns: int
    value: Any = None
    """The value as a replay would decode it."""


class StepExecutor:
    """Executes attempts of steps."""

    def __init__(
        self,
        codec: Codec,
        clock: Clock,
        *,
        grace: float = GRACE_S,
        threads: Executor | None = None,
        inherited_files: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self.grace = grace
        self._inherited_files = inherited_files
        self._codec = codec
        self.clock = clock
        self.isolation = CrashIsolation(clock)
        # A thread that hangs must not keep other steps from starting.
        self._threads = threads or DaemonThreads(MAX_THREADS, "outlast-step")
        self._leaping = clock if isinstance(clock, LeapingClock) else None

    async def attempt(
        self,
        step: StepDefinition,
        context: StepContext,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Outcome:
        """Execute one attempt; returns the encoded value or the error. A process that was suspended past its lease
        waits here until the lease is renewed, because another process may have claimed the run."""
        try:
            while not context.lease_held():
                await self.clock.sleep(LEASE_POLL_S)
        except asyncio.CancelledError:
            context.on_never_called()
            raise
        began = self.clock.monotonic()
        token = step_context.set(context)
        output: Raw | None = None
        back: Any = None
        error: BaseException | None = None
        try:
            if self._leaping is None:
                call = self._call(step, context, args, kwargs)
            else:
                call = self._call_announced(self._leaping, step, context, args, kwargs)
            value = await (call if step.timeout is None else self._limited(step, call))
            output, back = step.signature.roundtrip_result(self._codec, value)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # cancelled by the engine or by the step: the caller knows
            error = self_cancelled(step)
        except GeneratorExit as raised:
            if step_context.get(None) is not context:
                raise  # the loop that ends, or the garbage collector, closes this coroutine
            error = raised
        except BaseException as raised:
            error = raised
            if log.isEnabledFor(logging.INFO):
                extra = {"run": context.run_id, "step": context.key}
                what = (context.key, shown(context.run_id), context.attempt)
                log.info("step %s [run=%s] attempt %d raised", *what, exc_info=raised, extra=extra)
        finally:
            step_context.reset(token)
        elapsed = int((self.clock.monotonic() - began) * 1e9)
        return Outcome(output, error, elapsed, back)

    async def _call_in_process(
        self, step: StepDefinition, context: StepContext, args: Any, kwargs: Any
    ) -> Any:
        """The function's value from a process of its own, which encodes JSON without the codec's transforms."""
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
        try:
            output = await call_in_process(step, order, report, self._inherited_files())
        except ProcessStepFailed as failed:
            failed.decode(plain)
            raise
        return step.signature.decode_result(plain, output)

    def _call(
        self, step: StepDefinition, context: StepContext, args: Any, kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        if step.process:
            return self._call_in_process(step, context, args, kwargs)
        return call_function(step, args, kwargs, self._threads)

    async def _call_announced(
        self,
        clock: LeapingClock,
        step: StepDefinition,
        context: StepContext,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """`_call` within `LeapingClock.attempt`, so that a virtual clock knows that a step is in flight."""
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
        # A future cannot hold the first, and the second would close the coroutine that waits for this thread.
        raise RuntimeError(f"{function.__name__} raised {type(odd).__name__}") from odd
    finally:
        in_threads.pop(me, None)


async def call_function(
    step: StepDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], threads: Executor
) -> Any:
    """Call a step's function, in a thread if it is a plain one."""
    try:
        if step.is_async:
            value = await step.function(*args, **kwargs)
        else:
            context = copy_context()
            call = lambda: context.run(_in_thread, step.function, args, kwargs)  # noqa: E731
            # A connection may belong to a thread: then the step has to run in that thread.
            own = getattr(step_connection.get(None), "threads", threads)
            future = own.submit(call)
            try:
                value = await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                if future.cancel() and (waiting := step_context.get(None)) is not None:
                    waiting.on_never_called()  # no thread has taken the call, and none will
                raise
    except (SystemExit, KeyboardInterrupt) as exit:
        # asyncio would raise it out of the loop: it would end this process, and every process that retries the
        # step. Ctrl-C does not reach a step function: asyncio.run cancels its main task instead.
        raise RuntimeError(
            f"step {step.name!r} tried to end its process ({describe(exit)}): raise an Exception instead"
        ) from exit
    if type(value) not in PLAIN and (hasattr(value, "__next__") or hasattr(value, "__anext__")):
        raise WorkflowMisuse(
            f"step {step.name!r} returned a generator, which cannot be recorded: return a list"
        )
    return value


THREAD_IDLE_S = 10.0
"""How long an idle thread waits for a call before it ends."""

T = TypeVar("T")
_Call = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """Runs each call at once in an idle or a new thread, up to `most` threads; further calls wait."""

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
                # Not in the caller's context: each call brings its own.
                contextvars.Context().run(thread.start)
            except BaseException as error:
                with self._lock:
                    self._threads -= 1
                # The system has no thread left: the call waits for a thread of this pool.
                if not self._threads or not isinstance(error, RuntimeError):
                    raise
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                call = self._calls.get(timeout=THREAD_IDLE_S)
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
            del call  # an idle thread must not keep the result alive


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is the outcome of the call
        future.set_exception(error)
    else:
        future.set_result(result)
