package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// worker acts as an agent and its steps, in this process. It claims jobs and finishes
// them without any work.
type worker struct {
	runner  string
	base    *client.Client // without a token
	session *client.Client
}

// newWorker enrols an agent of the runner with a new key and opens a session. instance is
// the name of the session's agent process.
func newWorker(ctx context.Context, admin *client.Client, runner, instance string) (*worker, error) {
	enrolment, err := admin.CreateEnrolment(ctx, runner)
	if err != nil {
		return nil, err
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	w := &worker{runner: runner, base: admin.WithToken("")}
	enrolled, err := w.base.Enrol(ctx, wire.EnrolRequest{Token: enrolment.Token, PublicKey: pub})
	if err != nil {
		return nil, err
	}
	challenge, err := w.base.Challenge(ctx)
	if err != nil {
		return nil, err
	}
	session, err := w.base.CreateSession(ctx, wire.SessionRequest{RunnerID: enrolled.RunnerID, Nonce: challenge.Nonce, Instance: instance,
		Version: "bench", Capacity: 1, PublicKey: pub,
		Signature: ed25519.Sign(key, wire.SessionStatement(challenge.Nonce, enrolled.RunnerID, instance))})
	if err != nil {
		return nil, err
	}
	w.session = admin.WithToken(session.Token)
	return w, nil
}

// claim waits for a job and claims it.
func (w *worker) claim(ctx context.Context) (wire.Claim, error) {
	return w.session.Claim(ctx, 20*time.Second, false)
}

// start starts a claimed job, as a step does.
func (w *worker) start(ctx context.Context, c wire.Claim) (wire.Started, error) {
	started, err := w.base.WithToken(c.LaunchToken).Start(ctx, c.Job, wire.StartRequest{StepID: "bench-" + c.Job})
	if err != nil {
		return wire.Started{}, fmt.Errorf("start job %s: %w", c.Job, err)
	}
	return started, nil
}

// finish starts a claimed job and reports success. A step does the same if its plugin does
// nothing and writes no log.
func (w *worker) finish(ctx context.Context, c wire.Claim) error {
	started, err := w.start(ctx, c)
	if err != nil {
		return err
	}
	err = w.base.WithToken(started.LeaseToken).Finish(ctx, c.Job, wire.FinishRequest{Outcome: "succeeded"})
	if err != nil {
		return fmt.Errorf("finish job %s: %w", c.Job, err)
	}
	return nil
}
