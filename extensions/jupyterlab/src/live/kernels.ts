// The running Python kernels, which are watched while the panel is visible. A kernel whose compilation is open in a tab
// is watched until that tab is closed.

import type { ServiceManager, Session } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";

import { WatchedKernel } from "./watched_kernel";

export class Kernels {
  readonly changed = new Signal<this, void>(this);
  private readonly watched = new Map<string, WatchedKernel>(); // by kernel id
  private isOn = false;

  constructor(private readonly services: ServiceManager.IManager) {}

  /** The kernels in which aotviz is imported. */
  found(): WatchedKernel[] {
    return [...this.watched.values()].filter((kernel) => kernel.isFound);
  }

  /** The number of running Python kernels. */
  get running(): number {
    return this.watched.size;
  }

  start(): void {
    if (this.isOn) return;
    this.isOn = true;
    this.services.sessions.runningChanged.connect(this.follow, this);
    this.follow();
    void this.services.sessions.refreshRunning();
  }

  stop(): void {
    this.isOn = false;
    this.services.sessions.runningChanged.disconnect(this.follow, this);
    this.drop();
  }

  /** While the panel is hidden, only kernels with an open tab are watched. */
  private drop(): void {
    if (this.isOn) return;
    for (const [id, kernel] of this.watched) {
      if (kernel.isHeld) continue;
      kernel.dispose();
      this.watched.delete(id);
    }
  }

  private follow(): void {
    const sessions = new Map<string, Session.IModel>();
    for (const session of this.services.sessions.running()) {
      if (session.kernel && this.isPython(session.kernel.name)) sessions.set(session.kernel.id, session);
    }
    for (const [id, kernel] of this.watched) {
      if (sessions.has(id)) continue;
      kernel.dispose();
      this.watched.delete(id);
    }
    for (const [id, session] of sessions) {
      if (this.watched.has(id)) continue;
      const connection = this.services.kernels.connectTo({ model: session.kernel!, handleComms: false });
      const kernel = new WatchedKernel(session, connection);
      kernel.changed.connect(() => this.changed.emit());
      kernel.released.connect(() => this.drop());
      this.watched.set(id, kernel);
    }
    this.changed.emit();
  }

  private isPython(name: string): boolean {
    const spec = this.services.kernelspecs.specs?.kernelspecs[name];
    return spec === undefined || spec.language.toLowerCase() === "python";
  }
}
