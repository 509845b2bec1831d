package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/runner/attempt"
)

// accounts compares the final logs, states, disks, queue and blobs with the recorded events.
func (w *world) accounts() {
	w.checkLogs()
	w.checkCloud()
	w.checkDisks()
	w.checkQueue()
	w.checkBlobs()
}

// ours matches the lines that a step adds to its tool's log.
var ours = regexp.MustCompile(`\n?\[fairlead: [^\]]*\]\n|^verified: a build made [^\n]*\n?`)

// checkLogs checks that each log has the tool's output byte for byte, or is marked truncated.
func (w *world) checkLogs() {
	log := w.backing.log.log()
	for _, j := range w.allJobs() {
		infos, err := log.Streams(context.Background(), string(j.ID))
		w.must("list streams", err)
		stored := map[int64]joblog.Info{}
		for _, i := range infos {
			stored[i.Stream.Epoch] = i
		}
		for epoch := int64(1); epoch <= j.Lease.Epoch; epoch++ {
			attemptID := attempt.ID(j.ID, epoch)
			wrote := w.logs[attemptID]
			info, ok := stored[epoch]
			if !ok {
				if wrote != nil && wrote.Len() > 0 && w.faults["power-lost"]+w.faults["power-lost-at-write"] == 0 {
					w.violate("logs-are-kept", "%s wrote %d bytes, but has no log", attemptID, wrote.Len())
				}
				continue
			}
			// A refused start may leave an empty log open.
			if !info.Ended && j.State.Final() && info.Size > 0 {
				w.violate("logs-end", "the log of %s has not ended, but the job is %s", attemptID, j.State)
			}
			var got bytes.Buffer
			for int64(got.Len()) < info.Size {
				c, err := log.Read(context.Background(), info.Stream, int64(got.Len()), joblog.MaxRead)
				w.must("read log", err)
				got.Write(c.Data)
			}
			text, want := got.Bytes(), []byte(nil)
			if bytes.Contains(text, []byte("[fairlead: ")) || bytes.HasPrefix(text, []byte("verified: ")) {
				text = ours.ReplaceAll(text, nil)
			}
			if wrote != nil {
				want = wrote.Bytes()
			}
			switch {
			case !bytes.HasPrefix(want, text):
				w.violate("logs-are-what-tools-wrote", "%s wrote %d bytes, but its log has %d other bytes: %.60q", attemptID, len(want), len(text), text)
			case info.Ended && !info.Truncated && len(text) < len(want):
				w.violate("short-logs-say-so", "%s wrote %d bytes, but its log has %d and is not marked truncated", attemptID, len(want), len(text))
			}
		}
	}
}

func (w *world) allJobs() []store.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []store.Job
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		all = append(all, w.jobs[id])
	}
	return all
}

// readState returns the newest state of a component, from its host or the control plane.
func (w *world) readState(in installPlan, component string) (state, error) {
	var st state
	if w.inCluster(component) {
		return w.cluster(in.name + "/" + component).state(), nil
	}
	for _, r := range w.plan.runners {
		if w.plan.inSandbox(component) || r.name != in.runner || r.storage != "local" {
			continue
		}
		for _, h := range w.hosts {
			if h.runner.name == r.name {
				if doc := h.localState(in.name + "/" + component).doc; doc != nil {
					return st, json.Unmarshal(doc, &st)
				}
			}
		}
		return st, nil
	}
	ctx, s := context.Background(), store.New(w.table)
	inst, err := s.Install(ctx, org, in.name)
	if err != nil {
		return st, err
	}
	head, err := s.State(ctx, inst.V.ID, component)
	if err != nil || head.V.Blob == "" {
		return st, err
	}
	sealed, err := w.blobs.Get(ctx, head.V.Blob)
	if err != nil {
		return st, err
	}
	raw, err := seal.NewKeyring(w.sealKey).Open(ctx, sealed, "state/"+string(inst.V.ID)+"/"+component)
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(raw, &st)
}

// checkCloud checks that the states contain the resources in the cloud, with their attributes. A
// resource of a tool that was killed before it saved its state may be missing in the state.
func (w *world) checkCloud() {
	for _, in := range w.plan.installs {
		for _, c := range w.plan.app {
			key := in.name + "/" + c.name
			st, err := w.readState(in, c.name)
			if err != nil {
				w.violate("states-are-readable", "%s: %v", key, err)
				continue
			}
			known := map[string]bool{}
			for name, o := range st.Resources {
				known[o.UID] = true
				t, ok := w.cloud[key][o.UID]
				// If a tool changed a resource and could not save its state, the state is
				// older than the cloud, and the next plan finds no difference.
				if lags := ok && t.attr == w.wanted[key][name]; (!ok || t.attr != o.Attr && !lags) && !w.touched[o.UID] {
					w.violate("states-tell-the-truth", "%s: %s (%s) is %s in the state, but %q in the cloud", key, name, o.UID, o.Attr, t.attr)
				}
			}
			for uid, t := range w.cloud[key] {
				if !known[uid] && t.orphan == "" {
					w.violate("nothing-is-forgotten", "%s: %s created %s, but no state contains it", key, t.maker, uid)
				}
			}
		}
	}
}

// checkDisks checks that no process and no folder of a job remains on a host.
func (w *world) checkDisks() {
	for _, h := range w.hosts {
		if h.gone {
			continue
		}
		steps, tools := h.living()
		for _, s := range steps {
			w.violate("nothing-is-left", "%s: %s is alive", h.name, s.p.name)
		}
		for _, t := range tools {
			w.violate("nothing-is-left", "%s: %s is alive", h.name, t.name)
		}
		for _, folder := range []string{"steps", "attempts", "work"} {
			entries, err := os.ReadDir(filepath.Join(h.dir, folder))
			if err != nil && !os.IsNotExist(err) {
				w.must("read a folder", err)
			}
			for _, e := range entries {
				w.violate("nothing-is-left", "%s: %s/%s", h.name, folder, e.Name())
			}
		}
	}
}

// checkQueue checks that no wake-up remains.
func (w *world) checkQueue() {
	ctx, s := context.Background(), store.New(w.table)
	for _, r := range w.runnersNow() {
		got, err := s.Runner(ctx, org, r.name)
		w.must("read a runner", err)
		for {
			m, err := w.queue.Receive(ctx, "runner-"+string(got.V.ID), time.Hour, 0)
			if err == queue.ErrNoMessage {
				break
			}
			w.must("receive", err)
			w.violate("nothing-is-left", "a wake-up of %s is in the queue", m.Body)
		}
	}
}

// checkBlobs checks that every blob that a record names exists, and that no other blob exists.
func (w *world) checkBlobs() {
	ctx, s := context.Background(), store.New(w.table)
	keys, err := w.blobs.List(ctx, "")
	w.must("list blobs", err)
	wanted := map[string]bool{}
	for _, in := range w.plan.installs {
		inst, err := s.Install(ctx, org, in.name)
		if err != nil {
			continue
		}
		for _, c := range w.plan.app {
			if head, err := s.State(ctx, inst.V.ID, c.name); err == nil {
				wanted[head.V.Blob] = true
				for _, k := range head.V.History {
					wanted[k] = true
				}
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if k != "" && !slices.Contains(keys, k) {
			w.violate("states-are-kept", "a state head names %s, which does not exist", k)
		}
	}
	var left []string
	for _, k := range keys {
		if !wanted[k] {
			left = append(left, k)
		}
	}
	if len(left) > 0 {
		w.violate("nothing-is-left", "no record names %d blobs: %s", len(left), strings.Join(left[:min(3, len(left))], ", "))
	}
}

// stuck describes the deployments that have not ended.
func (w *world) stuck() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(w.deployments)) {
		d := w.deployments[id]
		if d.State.Final() {
			continue
		}
		line := fmt.Sprintf("%s (%s) of %s is %s:", id, d.Kind, d.InstallName, d.State)
		for _, n := range d.Nodes {
			line += fmt.Sprintf(" %s=%s", n.Component, n.State)
			for _, j := range w.jobs {
				if j.Deployment == id && j.Component == n.Component && !j.State.Final() {
					line += fmt.Sprintf("(%s %s@%d)", j.ID, j.State, j.Lease.Epoch)
				}
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
