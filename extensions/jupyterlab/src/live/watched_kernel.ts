// One running kernel, while the panel or one of the kernel's tabs is open: whether aotviz is imported there, and its
// compilations as they happen.
//
// The kernel runs a user's program, so we send it few requests. The list of its comms shows whether aotviz is imported,
// and every kernel answers that request of the protocol. We send it once, again after each cell, and also while a cell
// runs if the answer does not delay the cell. A restarted kernel uses another session in its messages. A connection
// beside the notebook's gets no other sign of a restart, and it may miss this one too: the server may have finished its
// requests to the new kernel before our socket connects. So a kernel whose rows or tabs would be lost is checked at
// intervals. Messages go through a connection of our own that handles no comms. JupyterLab's widgets have another
// connection, and a second one that handled comms would close comms that it does not know. If the kernel supports
// subshells, we create one, so that the kernel answers while a cell runs.

import type { Wait } from "@aotviz/core";
import { Kernel, KernelMessage, type Session } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";

import type { LiveCompilation } from "../recording_view";
import { message, type Question, type Row, TARGET } from "./protocol";

const RENEW_MS = 240_000; // the kernel forgets us after longer than this (LEASE_S in live/panel.py)
const PATIENCE_MS = 30_000;
const GONE = "The kernel that compiled this function was restarted, or has ended. Its compilations are lost.";
const AGAIN_MS = 1_500; // between two checks of a kernel that runs a cell
const LOOK_MS = 5_000; // between two checks that it is still the same kernel
const LOST_MS = 10_000; // a subshell answers sooner, or its answer is lost

type Waiting = {
  resolve(bytes: Uint8Array): void;
  reject(error: Error): void;
  done(): void;
  onStage?: ((stage: string) => void) | undefined;
};
type Asked = { readonly ask: "recording" | "part"; readonly question: string } & Question;

export class WatchedKernel {
  readonly changed = new Signal<this, void>(this);
  /** Emitted when the last tab of this kernel is closed. */
  readonly released = new Signal<this, void>(this);
  readonly rows = new Map<string, Row>();
  private comm = "";
  private readonly waiting = new Map<string, Waiting>();
  private readonly timers: readonly number[];
  private looking: { readonly isDisposed: boolean; dispose(): void } | null = null;
  private lookedAt = 0; // milliseconds
  private later = 0;
  private questions = 0;
  private readonly tabs = new Set<(key: string) => void>(); // each is told which compilation changed
  private askedUntil = 0; // milliseconds: until then a question may still be answered; 0: there is no such question
  private askAgain = false; // a cell ended, or a check was due, while an earlier question was unanswered
  private runsCell: boolean | null = null; // null: not known yet
  private lives = 0; // how often the kernel was restarted
  private life = ""; // the session of the kernel's messages; a kernel that was restarted has another
  private isDisposed = false;

  constructor(
    readonly session: Session.IModel,
    private readonly kernel: Kernel.IKernelConnection,
  ) {
    kernel.iopubMessage.connect(this.hear, this);
    kernel.statusChanged.connect(this.follow, this);
    kernel.disposed.connect(this.dispose, this);
    this.timers = [
      window.setInterval(() => this.comm && this.send({ ask: "watch", who: kernel.clientId }), RENEW_MS),
      window.setInterval(() => this.look(), LOOK_MS),
    ];
    kernel.info.then(
      () => (this.runsCell ??= false),
      () => undefined,
    );
    void this.find();
  }

  /** Whether aotviz has been imported there. */
  get isFound(): boolean {
    return this.comm !== "";
  }

  /** Whether a tab shows a compilation of this kernel. */
  get isHeld(): boolean {
    return this.tabs.size > 0;
  }

  /**
   * One compilation, for a tab. The kernel is watched until the tab is closed. A restarted kernel uses the same keys
   * again, so the compilation belongs to the current life of the kernel only.
   */
  open(key: string): LiveCompilation {
    const comm = this.comm;
    let changed = (): void => {};
    const hear = (moved: string): void => {
      if (moved === key && comm === this.comm) changed();
    };
    this.tabs.add(hear);
    return {
      recording: () => this.ask(comm, (question) => ({ ask: "recording", question, key })),
      ask: (want, wait) => this.ask(comm, (question) => ({ ask: "part", question, key, want }), wait),
      follow: (told) => {
        changed = told;
        return () => (changed = () => {});
      },
      release: () => {
        if (this.tabs.delete(hear) && !this.isHeld) this.released.emit();
      },
    };
  }

  private ask(
    comm: string,
    asked: (question: string) => Asked,
    { patient = false, signal, onStage }: Wait = {},
  ): Promise<Uint8Array> {
    const question = `${Date.now()}.${this.questions++}`;
    return new Promise((resolve, reject) => {
      if (this.isDisposed || !comm || comm !== this.comm) return reject(new Error(GONE));
      const cancel = (): void => this.send({ ask: "cancel", question });
      const timer = patient
        ? undefined
        : window.setTimeout(() => {
            this.forget(question);
            reject(new Error("The kernel does not answer. If it is busy, try again when it is idle."));
          }, PATIENCE_MS);
      const done = (): void => {
        window.clearTimeout(timer);
        signal?.removeEventListener("abort", cancel);
      };
      signal?.addEventListener("abort", cancel);
      this.waiting.set(question, { resolve, reject, done, onStage });
      this.send(asked(question));
    });
  }

  /** Removes a question from the list of unanswered ones. */
  private forget(question: string): Waiting | undefined {
    const waiting = this.waiting.get(question);
    this.waiting.delete(question);
    waiting?.done();
    return waiting;
  }

  /** Rejects all unanswered questions. */
  private lose(): void {
    for (const question of [...this.waiting.keys()]) this.forget(question)?.reject(new Error(GONE));
  }

  dispose(): void {
    if (this.isDisposed) return;
    this.isDisposed = true;
    this.timers.forEach((timer) => window.clearInterval(timer));
    window.clearTimeout(this.later);
    this.lose();
    if (!this.kernel.isDisposed) {
      if (this.comm) this.send({ ask: "stop", who: this.kernel.clientId });
      if (this.kernel.subshellId !== null) {
        this.control("delete_subshell_request", { subshell_id: this.kernel.subshellId }).done.catch(() => undefined);
        this.kernel.subshellId = null; // else the connection would send the same request and wait
      }
      this.kernel.dispose();
    }
    Signal.clearData(this);
  }

  private async find(): Promise<void> {
    if (this.comm || this.isDisposed) return;
    if (Date.now() < this.askedUntil) {
      this.askAgain = true;
      return;
    }
    this.askedUntil = Infinity;
    this.askAgain = false;
    const life = this.lives;
    try {
      await this.connected();
      this.askedUntil = Date.now() + PATIENCE_MS;
      if (this.kernel.subshellId === null && (await this.hasSubshells())) {
        const made = (await this.control("create_subshell_request").done) as KernelMessage.ICreateSubshellReplyMsg;
        if (life === this.lives && !this.isDisposed) this.kernel.subshellId = made.content.subshell_id;
      }
      const hasSubshell = this.kernel.subshellId !== null; // else it answers after the cell that runs
      this.askedUntil = hasSubshell ? Date.now() + LOST_MS : Infinity;
      if (hasSubshell) this.findLater(LOST_MS + AGAIN_MS);
      const reply = await this.kernel.requestCommInfo({ target_name: TARGET });
      if (reply.content.status !== "ok" || this.isDisposed || this.comm || life !== this.lives) return;
      const found = Object.keys(reply.content.comms)[0];
      if (!found) return this.findLater();
      this.comm = found;
      this.send({ ask: "watch", who: this.kernel.clientId });
      this.changed.emit();
    } catch (error) {
      if (this.isDisposed) return;
      console.debug(`aotviz: ${this.session.path} could not be asked`, error);
      if (life === this.lives) this.findLater();
    } finally {
      if (life === this.lives) this.askedUntil = 0;
    }
    if (this.askAgain && life === this.lives) await this.find();
  }

  /**
   * A running cell may import aotviz at any time, and a subshell can check this before the cell ends. A cell that began
   * before this connection counts as running until the kernel answers on its shell channel. The connection's status
   * cannot tell: it is "idle" once the subshell is created, although the cell still runs.
   */
  private findLater(ms = AGAIN_MS): void {
    window.clearTimeout(this.later);
    if (this.runsCell ?? true) this.later = window.setTimeout(() => void this.find(), ms);
  }

  private connected(): Promise<void> {
    return new Promise((resolve) => {
      if (this.kernel.connectionStatus === "connected") return resolve();
      this.kernel.connectionStatusChanged.connect((_, status) => status === "connected" && resolve());
    });
  }

  /**
   * The same as `kernel.info`, which uses the shell channel, so its answer comes only after the running cell.
   */
  private async hasSubshells(): Promise<boolean> {
    const told = this.control("kernel_info_request").done.then(
      (reply) => reply?.content as KernelMessage.IInfoReply | undefined,
    );
    const info = await Promise.race([this.kernel.info, told]);
    return info?.supported_features?.includes("kernel subshells") ?? false;
  }

  /** Sends a request on the control channel, which the kernel answers while a cell runs. */
  private control(msgType: string, content: object = {}): Kernel.IControlFuture {
    const question = {
      msgType,
      channel: "control",
      content,
      session: this.kernel.clientId,
      username: this.kernel.username,
    };
    return this.kernel.sendControlMessage(
      KernelMessage.createMessage(question as never) as unknown as KernelMessage.IControlMessage,
      true,
      true,
    );
  }

  private send(content: Question): void {
    this.kernel.sendShellMessage(
      KernelMessage.createMessage<KernelMessage.ICommMsgMsg<"shell">>({
        msgType: "comm_msg",
        channel: "shell",
        content: { comm_id: this.comm, data: content as never },
        session: this.kernel.clientId,
        username: this.kernel.username,
        subshellId: this.kernel.subshellId,
      }),
      false,
      true,
    );
  }

  /**
   * Makes the kernel send a message, so that `hear` can read its session. The request is kernel_info, because it
   * changes the "busy" or "idle" status of no tab.
   */
  private look(): void {
    if (!this.comm || this.kernel.connectionStatus !== "connected") return;
    // For example, the kernel is stopped.
    if (this.looking && !this.looking.isDisposed && Date.now() - this.lookedAt < PATIENCE_MS) return;
    this.looking?.dispose();
    this.lookedAt = Date.now();
    const looking = this.control("kernel_info_request");
    looking.done.catch(() => undefined); // an unanswered request is dropped
    this.looking = looking;
  }

  private follow(_: Kernel.IKernelConnection, status: Kernel.Status): void {
    if (status === "restarting" || status === "autorestarting" || status === "dead") this.begin();
  }

  /** Takes the session of the kernel's messages. A different session means that the kernel was restarted. */
  private recognise(session: string): void {
    if (this.life && this.life !== session) this.begin();
    this.life = session;
  }

  /** The previous kernel is gone, with its compilations. */
  private begin(): void {
    this.lives++;
    this.life = "";
    this.askedUntil = 0; // earlier questions get no answer
    this.runsCell = null;
    this.comm = "";
    this.kernel.subshellId = null;
    this.lose();
    this.rows.clear();
    this.changed.emit();
  }

  private hear(_: Kernel.IKernelConnection, heard: KernelMessage.IIOPubMessage): void {
    if (KernelMessage.isStatusMsg(heard)) {
      const parent = heard.parent_header as { msg_type?: string };
      if (parent.msg_type) this.recognise(heard.header.session); // without a parent it may be the server's
      if (parent.msg_type !== "execute_request") return;
      this.runsCell = heard.content.execution_state !== "idle";
      if (this.comm) return;
      if (this.runsCell) this.findLater();
      else void this.find();
      return;
    }
    if (!KernelMessage.isCommMsgMsg(heard) || heard.content.comm_id !== this.comm || !this.comm) return;
    const said = message(heard.content.data);
    if (!said) return;
    if ("answer" in said) return this.take(said.answer, said.error, heard.buffers?.[0]);
    if ("progress" in said) return this.waiting.get(said.progress)?.onStage?.(said.stage);
    if (said.whole) this.rows.clear();
    for (const row of said.rows) {
      this.rows.set(row.key, row);
      for (const hear of this.tabs) hear(row.key);
    }
    this.changed.emit();
  }

  private take(question: string, error: string | undefined, buffer: ArrayBuffer | ArrayBufferView | undefined): void {
    const waiting = this.forget(question);
    if (!waiting) return;
    if (error !== undefined || !buffer) return waiting.reject(new Error(error ?? "The kernel's answer was empty."));
    waiting.resolve(
      ArrayBuffer.isView(buffer)
        ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
        : new Uint8Array(buffer),
    );
  }
}
