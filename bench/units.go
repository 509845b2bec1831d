package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// measureUnits deploys through a real runner with a table that counts the units that
// DynamoDB would bill.
func measureUnits(ctx context.Context, b *bench) (err error) {
	meter := enginetest.Meter(enginetest.Memory())
	p, err := startMetered(ctx, b, meter, newTally())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", 0, b.tool); err != nil {
		return err
	}
	for _, d := range []struct {
		figure, app string
		jobs        float64 // a plan and an apply for each component
		args        []string
	}{
		{"write_units_per_job", "hello", 2, nil},
		{"write_units_per_job_shop", "shop", 8, []string{"--input-file", b.path("examples/shop/demo.inputs.yaml")}},
	} {
		if err := p.publish(ctx, b.path("examples", d.app)); err != nil {
			return err
		}
		if err := runCommand(p.cli(ctx, append([]string{"install", "create", d.app, "--app", d.app}, d.args...)...)); err != nil {
			return err
		}
		meter.Reset()
		if err := deployAPI(ctx, p.Client, d.app); err != nil {
			return err
		}
		total := meter.Total()
		b.note("%s: %.0f write units (%.0f of them for indexes), %.0f read units", d.app, total.Write(), total.IndexWrite, total.Read)
		b.set(d.figure, total.Write()/d.jobs)
	}
	return measureRenewals(ctx, b, p, meter)
}

// measureRenewals counts the write units of a lease's renewal and of a heartbeat.
func measureRenewals(ctx context.Context, b *bench, p *metered, meter *enginetest.MeterEngine) error {
	session, err := openSession(ctx, p.control, control.DefaultRunner)
	if err != nil {
		return err
	}
	meter.Reset()
	if err := p.control.HeartbeatSession(ctx, session, control.Heartbeat{Capacity: 4}); err != nil {
		return err
	}
	b.set("write_units_per_heartbeat", meter.Total().Write())

	// The job goes to a runner without an agent, so that no agent claims it. A session can
	// claim only the jobs of its own runner.
	made, err := p.control.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "idle"}, "")
	if err != nil {
		return err
	}
	if session, err = openSession(ctx, p.control, made.Name); err != nil {
		return err
	}
	if _, err := p.control.CheckRunner(ctx, control.User{Org: fairlead.DefaultOrg}, made.Name, ""); err != nil {
		return err
	}
	c, err := p.control.Claim(ctx, session, time.Second)
	if err != nil {
		return err
	}
	if _, err := p.control.StartJob(ctx, c.ID, c.Lease.Epoch, "bench-"+string(c.ID)); err != nil {
		return err
	}
	renewals := b.counts.renewals
	meter.Reset()
	for range renewals {
		if _, err := p.control.RenewLease(ctx, control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}, 0, 0); err != nil {
			return err
		}
	}
	b.set("write_units_per_renewal", meter.Total().Write()/float64(renewals))
	return nil
}

// metered is a control plane in this process. Its agents are separate processes.
type metered struct {
	plane
	control *control.Control
	close   func() error
}

// stop stops the agents and the server.
func (m *metered) stop() error {
	var err error
	for _, a := range m.agents {
		err = errors.Join(err, a.stop())
	}
	return errors.Join(err, m.close())
}

// startMetered serves both APIs and a registry with the metered table. The other parts are
// in memory. t counts the HTTP requests and the requests to the queue, the blobs and the
// signer.
func startMetered(ctx context.Context, b *bench, meter *enginetest.MeterEngine, t *tally) (*metered, error) {
	dir, err := os.MkdirTemp(b.work, "units-") // two sections start one control plane each
	if err != nil {
		return nil, err
	}
	m := &metered{plane: plane{b: b, dir: dir}}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	mint := make([]byte, identity.MinKey)
	rand.Read(mint)                                 // never fails (crypto/rand)
	logger := slog.New(slog.NewJSONHandler(t, nil)) // the functions log at the level info
	sign := func(_ context.Context, message []byte) ([]byte, error) {
		t.add(&t.signed)
		return ed25519.Sign(key, message), nil
	}
	m.control = control.New(control.Deps{
		Store: store.New(meter), Queue: countedQueue{memory.New(time.Now, 5), t}, Log: joblogtest.Memory(), Blobs: countedBlobs{blobtest.Memory(), t},
		Sealer: seal.NewKeyring(seal.GenerateKey()), Signer: events.NewRemoteSigner(key.Public().(ed25519.PublicKey), sign), Minter: identity.NewMinter(mint),
		IDs: fairlead.RandomIDs(time.Now), Now: time.Now, Logger: logger, Intervals: control.Metered(),
	})
	token := identity.NewToken(identity.PrefixAPI)
	err = errors.Join(
		m.control.RegisterToken(ctx, fairlead.DefaultOrg, "admin", token),
		m.control.EnsureRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: control.DefaultRunner}),
	)
	if err != nil {
		return nil, err
	}
	m.tokenFile = filepath.Join(m.dir, "admin-token")
	if err := os.WriteFile(m.tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return nil, err
	}
	registry, err := artifact.RegistryHandler(filepath.Join(m.dir, "artifacts"), artifact.RegistryOptions{Log: logger})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := api.Options{Control: m.control, Registry: ln.Addr().String(), Version: "bench", IDs: m.control.IDs, Logger: logger}
	mux := http.NewServeMux()
	mux.Handle("/", api.ControlHandler(o))
	mux.Handle("/runner/", api.RunnerHandler(o))
	mux.Handle("/v2/", api.RegistryGuard(o, registry))
	server := api.Bounds{}.Server(t.handler(mux))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	m.close = func() error {
		err := server.Close()
		if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve: %w", serr))
		}
		return err
	}
	m.Client, err = client.New("http://"+ln.Addr().String(), token, client.Options{})
	return m, err
}
