package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"os"

	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/local"
)

// controlCallers is the number of concurrent callers. Each caller runs one job at a time
// from its creation to its end. With 16 callers most commits of the table share a sync of
// the disk. More callers give no higher rate on two cores.
const controlCallers = 16

// measureControl runs jobs through a control plane in a separate process, with four
// requests for each job over loopback: create, claim, start, finish. The callers are in
// this process and use the same cores.
func measureControl(ctx context.Context, b *bench) (err error) {
	var admin *client.Client
	pid := os.Getpid()
	if b.profile == "" {
		p, err := startPlane(ctx, b, "control", unlimited()...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		admin, pid = p.Client, p.server.pid()
	} else {
		// The control plane runs in this process, so that the profile shows it.
		s, stop, err := startLocal(ctx, b, "control")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		token, err := os.ReadFile(s.TokenFile())
		if err != nil {
			return err
		}
		if admin, err = client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{}); err != nil {
			return err
		}
	}
	w, err := newWorker(ctx, admin, "local", "bench")
	if err != nil {
		return err
	}
	return b.profiled("control", func() error {
		server, err := useOf(pid)
		if err != nil {
			return err
		}
		own, err := ownTime()
		if err != nil {
			return err
		}
		rate, err := rateOf(ctx, b.counts.controlJobs, func(ctx context.Context) error {
			if _, err := admin.CheckRunner(ctx, "local"); err != nil {
				return err
			}
			c, err := w.claim(ctx)
			if err != nil {
				return err
			}
			return w.finish(ctx, c)
		})
		if err != nil {
			return err
		}
		b.set("control_jobs_per_s", rate)
		return b.setControlCPU(pid, server, own)
	})
}

// setControlCPU records the CPU time that the server and the callers used for each job.
// The parameters server and own are the CPU times before the jobs. Unlike the rate, the
// CPU time hardly changes when other processes use the machine.
func (b *bench) setControlCPU(pid int, server processUse, own time.Duration) error {
	now, err := useOf(pid)
	if err != nil {
		return err
	}
	ownNow, err := ownTime()
	if err != nil {
		return err
	}
	jobs := float64(b.counts.controlJobs)
	b.set("control_server_cpu_ms", ms(now.cpu-server.cpu)/jobs)
	callers := ms(ownNow-own) / jobs
	if pid == os.Getpid() {
		callers = 0 // the server's time includes the callers' time
	}
	b.set("control_caller_cpu_ms", callers)
	return nil
}

// measureUseCases is measureControl without HTTP: it calls the use cases of the four
// requests.
func measureUseCases(ctx context.Context, b *bench) (err error) {
	s, stop, err := startLocal(ctx, b, "usecases")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c := s.Control()
	session, err := openSession(ctx, c, control.DefaultRunner)
	if err != nil {
		return err
	}
	return b.profiled("usecases", func() error {
		own, err := ownTime()
		if err != nil {
			return err
		}
		rate, err := rateOf(ctx, b.counts.controlJobs, func(ctx context.Context) error { return runJob(ctx, c, session) })
		if err != nil {
			return err
		}
		ownNow, err := ownTime()
		b.set("control_usecases_jobs_per_s", rate)
		b.set("control_usecases_cpu_ms", ms(ownNow-own)/float64(b.counts.controlJobs))
		return err
	})
}

// runJob runs one job from its creation to its end.
func runJob(ctx context.Context, c *control.Control, session control.Session) error {
	if _, err := c.CheckRunner(ctx, control.User{Org: fairlead.DefaultOrg}, control.DefaultRunner, ""); err != nil {
		return err
	}
	claim, err := c.Claim(ctx, session, 20*time.Second)
	if err != nil {
		return err
	}
	if _, err := c.StartJob(ctx, claim.ID, claim.Lease.Epoch, "bench-"+string(claim.ID)); err != nil {
		return err
	}
	return c.FinishJob(ctx, control.Holder{Job: claim.ID, Epoch: claim.Lease.Epoch}, control.Report{Outcome: control.OutcomeSucceeded})
}

// rateOf calls fn for each of n jobs from controlCallers concurrent callers, and returns
// the jobs per second.
func rateOf(ctx context.Context, n int, fn func(context.Context) error) (float64, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(controlCallers)
	began := time.Now()
	for range n {
		g.Go(func() error { return fn(ctx) })
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("run a job: %w", err)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// startLocal starts a control plane in this process.
func startLocal(ctx context.Context, b *bench, name string) (*local.Server, func() error, error) {
	s, err := local.Start(ctx, local.Options{Data: filepath.Join(b.work, name), Listen: "127.0.0.1:0", Version: "bench",
		Callers: api.CallerLimits{Rate: 1e6, Burst: 1e6, OrgRate: 1e6, OrgBurst: 1e6}})
	if err != nil {
		return nil, nil, err
	}
	return s, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopFor)
		defer cancel()
		return s.Close(ctx)
	}, nil
}

// openSession enrols an agent of the runner and opens a session.
func openSession(ctx context.Context, c *control.Control, name string) (control.Session, error) {
	open, err := enrolAgent(ctx, c, name)
	if err != nil {
		return control.Session{}, err
	}
	return open()
}

// enrolAgent enrols an agent and returns the function that opens a session of it.
func enrolAgent(ctx context.Context, c *control.Control, name string) (open func() (control.Session, error), err error) {
	token, _, err := c.CreateEnrolment(ctx, control.User{Org: fairlead.DefaultOrg}, name)
	if err != nil {
		return nil, err
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	runner, err := c.Enrol(ctx, token, pub)
	if err != nil {
		return nil, err
	}
	return func() (control.Session, error) {
		nonce := c.NewChallenge()
		opened, err := c.OpenSession(ctx, control.SessionProof{Runner: runner.ID, Nonce: nonce, PublicKey: pub,
			Statement: []byte(nonce), Signature: ed25519.Sign(key, []byte(nonce)), Instance: "bench", Version: "bench", Capacity: 1,
			Report: &control.Heartbeat{Capacity: 1}})
		return opened.Session, err
	}, nil
}
