//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/soak/account"
)

// collect collects the evidence from the control plane and the disks. No job runs any more. The
// control plane still runs.
func (w *world) collect(ctx context.Context, b *books) (account.Evidence, []wire.Job, error) {
	e := account.Evidence{Accepted: b.accepted, States: map[string][]account.Resource{}}
	ledger, err := os.Open(w.ledger())
	if err != nil {
		return e, nil, err
	}
	defer ledger.Close()
	if e.Ledger, err = account.Read(ledger); err != nil {
		return e, nil, err
	}
	deployments, err := client.All(ctx, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Deployment], error) {
		return w.client.ListDeployments(ctx, client.DeploymentFilter{}, o)
	})
	if err != nil {
		return e, nil, fmt.Errorf("list deployments: %w", err)
	}
	for _, d := range deployments {
		e.Deployments = append(e.Deployments, account.Deployment{ID: d.ID, State: d.State})
	}
	jobs, err := client.All(ctx, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Job], error) {
		return w.client.ListJobs(ctx, client.JobFilter{}, o)
	})
	if err != nil {
		return e, nil, fmt.Errorf("list jobs: %w", err)
	}
	if e.Jobs, err = w.jobs(ctx, jobs); err != nil {
		return e, jobs, err
	}
	if err := w.installs(ctx, &e); err != nil {
		return e, jobs, err
	}
	return e, jobs, nil
}

// jobs reads all jobs and their stored logs.
func (w *world) jobs(ctx context.Context, all []wire.Job) ([]account.Job, error) {
	got := make([]account.Job, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, listed := range all {
		g.Go(func() error {
			j, err := w.client.GetJob(ctx, listed.ID)
			if err != nil {
				return fmt.Errorf("read job %s: %w", listed.ID, err)
			}
			got[i] = account.Job{ID: j.ID, Operation: j.Operation, State: j.State, Reason: j.Reason, Deployment: j.Deployment,
				Owner: j.Install + "/" + j.Component, Epoch: j.Epoch}
			texts, err := w.readLogs(ctx, j.ID)
			if err != nil {
				return fmt.Errorf("read the log of %s: %w", j.ID, err)
			}
			for _, l := range j.Log {
				got[i].Logs = append(got[i].Logs, account.Log{Epoch: l.Epoch, Size: l.Size, Ended: l.Ended, Truncated: l.Truncated, Text: texts[l.Epoch]})
			}
			return nil
		})
	}
	return got, g.Wait()
}

// readLogs returns the log of each attempt of the job, by epoch.
func (w *world) readLogs(ctx context.Context, job string) (map[int64][]byte, error) {
	texts := map[int64][]byte{}
	var epoch, offset int64
	for {
		chunk, err := w.client.ReadJobLog(ctx, job, epoch, offset, 0)
		if err != nil {
			return nil, err
		}
		if chunk.Epoch != epoch && chunk.Offset != 0 || chunk.Epoch == epoch && chunk.Offset != offset {
			return nil, fmt.Errorf("after epoch %d, offset %d comes epoch %d, offset %d", epoch, offset, chunk.Epoch, chunk.Offset)
		}
		texts[chunk.Epoch] = append(texts[chunk.Epoch], chunk.Data...)
		if chunk.Done || chunk.Epoch == epoch && chunk.Next == offset {
			return texts, nil
		}
		epoch, offset = chunk.Epoch, chunk.Next
	}
}

// installs reads the pulled states and finds locks and unfinished deployments.
func (w *world) installs(ctx context.Context, e *account.Evidence) error {
	installs, err := client.All(ctx, w.client.ListInstalls)
	if err != nil {
		return fmt.Errorf("list installs: %w", err)
	}
	for _, in := range installs {
		if in, err = w.client.GetInstall(ctx, in.Name); err != nil {
			return fmt.Errorf("read install: %w", err)
		}
		if in.Deployment != "" || len(in.Queued) > 0 {
			e.Left = append(e.Left, fmt.Sprintf("install %s is busy with %q and %q", in.Name, in.Deployment, in.Queued))
		}
		for _, c := range in.Components {
			owner := in.Name + "/" + c.Name
			e.Wanted = append(e.Wanted, owner)
			if c.LockedBy != "" {
				e.Left = append(e.Left, fmt.Sprintf("the lock of %s, by %s", owner, c.LockedBy))
			}
			paths, _ := filepath.Glob(w.path("ledger", "*"+in.ID+"_"+c.Name+".tfstate")) // the pattern is valid
			for _, p := range paths {
				if e.States[owner], err = readState(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readState returns the resources of a state that the tool pulled.
func readState(path string) ([]account.Resource, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var st struct {
		Version   int
		Resources []struct {
			Instances []struct {
				Status     string
				Attributes struct{ ID string }
			}
		}
	}
	all := []account.Resource{}
	if len(b) == 0 {
		return all, nil
	}
	if err := json.Unmarshal(b, &st); err != nil || st.Version != 4 {
		return nil, fmt.Errorf("read the state %s: version %d: %w", path, st.Version, err)
	}
	for _, r := range st.Resources {
		for _, i := range r.Instances {
			all = append(all, account.Resource{ID: i.Attributes.ID, Tainted: i.Status == "tainted"})
		}
	}
	return all, nil
}

// stop stops all programs and returns what remains: processes, folders, locks.
func (w *world) stop(ctx context.Context) (left []string) {
	for _, h := range w.hosts {
		if err := h.agent.end(30 * time.Second); err != nil {
			left = append(left, err.Error())
		}
		_ = w.until(ctx, 10*time.Second, "", func() bool { return len(h.strays()) == 0 }) // the next lines list the processes that remain
		for _, p := range h.strays() {
			left = append(left, fmt.Sprintf("process on %s: %s", h.name, p))
		}
		for _, pattern := range []string{"steps/*", "work/*", "state/*/*/.terraform.tfstate.lock.info", "filler"} {
			found, _ := filepath.Glob(filepath.Join(h.data, pattern)) // the pattern is valid
			for _, f := range found {
				left = append(left, "on "+h.name+": "+strings.TrimPrefix(f, h.data+"/"))
			}
		}
	}
	if err := w.server.end(30 * time.Second); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// salvaged returns the number of salvaged files on the runners.
func (w *world) salvaged() (n int) {
	for _, h := range w.hosts {
		found, _ := filepath.Glob(filepath.Join(h.data, "salvage", "*", "*")) // the pattern is valid
		n += len(found)
	}
	return n
}

// calm makes the tool pull each state before later plans.
func (w *world) calm() error {
	f, err := os.OpenFile(w.path("ledger", "pull"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.Close()
}
