package runners

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// Lifetimes of sessions, enrolment tokens and nonces.
const (
	// SessionTTL is the lifetime of a session. The agent renews it earlier.
	SessionTTL = 15 * time.Minute
	// MaxSessionAge is how long an agent can renew a session. Then it opens a new one, so that
	// the sessions of an identity are counted again.
	MaxSessionAge = 24 * time.Hour
	// EnrolmentTTL is the lifetime of an unused enrolment token.
	EnrolmentTTL = time.Hour
	// challengeTTL is the time in which an agent must sign a nonce.
	challengeTTL = time.Minute
)

// Runner is a runner with its sessions, newest first.
type Runner struct {
	fairlead.Actors
	ID              fairlead.RunnerID
	Name            string
	Description     string
	Kind            string // of package runnerspec; "": local
	Storage         string // the kind of state storage
	Shared          bool   // owned by the operator, serves all orgs
	Group           placement.Path
	Install         fairlead.InstallID // the only install it serves; "": it serves a group, or is shared
	Mode            fairlead.RunnerMode
	Trust           *awsiam.Trust   // the AWS role of its agents; nil: none
	ServiceAccounts []string        // names, sorted
	Trusts          []string        // names of its own rules for OIDC tokens, sorted
	Config          json.RawMessage // of package runnerspec, its secrets masked
	Created         time.Time

	Sessions []Session
	State    string                 // never-seen (no known session), online, lost
	Wanted   *Wanted                // version its agents should run; nil: any version
	Customer *fairlead.CustomerMode // least restrictive mode of the online agents; nil: one is enabled, or none is online
	Warnings []string               // about the configuration that this request set
}

// Session is a session with its current state.
type Session struct {
	ID             fairlead.SessionID
	Org            fairlead.OrgID // of its runner
	Runner         fairlead.RunnerID
	Agent          string // id of its key, or its role
	Instance       string
	Version        string
	Protocol       string // of the runner API that the agent speaks; "": not reported
	Capacity       int
	Running        []string // jobs
	Draining       bool
	Customer       *fairlead.CustomerMode // nil: enabled
	Unhealthy      string                 // why the agent starts no jobs
	Isolation      string                 // as in Heartbeat
	WarmSteps      int                    // as in Heartbeat
	Expires        time.Time
	LastSeen       time.Time
	ServiceAccount string // as which the agent opened the session
	Trust          string // the own rule of the runner by which the agent opened the session
	Subject        string // subject of the OIDC token
	State          string // online, lost, ended
}

// sessionOf renders a session with its current state.
func sessionOf(k *kernel.Kernel, s store.Session) Session {
	return Session{ID: s.ID, Org: s.Org, Runner: s.Runner, Agent: s.Agent, Instance: s.Instance, Version: s.Version, Protocol: s.Protocol,
		Capacity: s.Capacity, Running: s.Running, Draining: s.Draining, Customer: s.Customer, Unhealthy: s.Unhealthy, Isolation: s.Isolation, WarmSteps: s.WarmSteps,
		Expires: s.Expires, LastSeen: s.LastSeen, ServiceAccount: s.Account, Trust: s.Trust, Subject: s.Subject, State: sessionState(k, s)}
}

// runnerOf renders a runner without its sessions.
func runnerOf(tx *kernel.Tx, r store.Runner) (Runner, error) {
	config, err := configuration(tx, r)
	return Runner{Actors: r.Actors, ID: r.ID, Name: r.Name, Description: r.Description, Kind: r.Kind, Storage: r.Storage, Shared: r.Shared(), Group: r.Group,
		Install: r.Install, Mode: r.VendorMode(), Trust: r.Trust, ServiceAccounts: r.ServiceAccounts, Trusts: r.Trusts, Config: config, Created: r.Created}, err
}

// Runner returns a runner of the org, or a shared one, with its sessions.
func (f *Fleet) Runner(ctx context.Context, org fairlead.OrgID, name string) (Runner, error) {
	r, err := FindRunner(f.Reading(ctx), org, name)
	if err != nil {
		return Runner{}, err
	}
	return WithSessions(f.Reading(ctx), r.V)
}

// WithSessions renders a runner with its sessions.
func WithSessions(tx *kernel.Tx, r store.Runner) (Runner, error) {
	out, err := runnerOf(tx, r)
	if err != nil {
		return out, err
	}
	out.State = "never-seen"
	sessions, err := tx.Store.Sessions(tx.Ctx, r.ID, 20)
	if err != nil {
		return out, err
	}
	states := sessionStates(tx.Kernel, sessions)
	for i, s := range sessions {
		if tx.Kernel.Now().After(s.V.Forgotten()) {
			continue
		}
		v := sessionOf(tx.Kernel, s.V)
		v.State = states[i]
		if v.State == "online" {
			out.State = "online"
		} else if out.State == "never-seen" {
			out.State = "lost"
		}
		out.Sessions = append(out.Sessions, v)
	}
	out.Customer = customerOf(out.Sessions)
	out.Wanted, err = wanted(tx, r.Version, r.Channel)
	return out, err
}

// sessionState returns the current state of an agent's newest session: online, lost or
// ended.
func sessionState(k *kernel.Kernel, s store.Session) string { return stateAfter(k, s, silence(k, s)) }

// silence returns after which time without a heartbeat an agent's newest session counts as lost.
func silence(k *kernel.Kernel, s store.Session) time.Duration {
	if len(s.Running) == 0 {
		return k.IdleLostAfter()
	}
	return k.LostAfter()
}

func stateAfter(k *kernel.Kernel, s store.Session, after time.Duration) string {
	switch {
	case s.Ended:
		return "ended"
	case k.Now().Sub(s.LastSeen) > after || !s.Suspect.IsZero():
		return "lost"
	}
	return "online"
}

// sessionStates returns the states of a runner's sessions, which are sorted, the newest
// first.
func sessionStates(k *kernel.Kernel, sessions []store.Stored[store.Session]) []string {
	var states []string
	for i, after := range silences(k, sessions) {
		states = append(states, stateAfter(k, sessions[i].V, after))
	}
	return states
}

// silences returns after which time without a heartbeat each of a runner's sessions counts as lost. The
// sessions are sorted, the newest first. A session that its agent has replaced gets no heartbeats any
// more. What it reported is old, so it counts as lost soon.
func silences(k *kernel.Kernel, sessions []store.Stored[store.Session]) (all []time.Duration) {
	type agent struct{ identity, instance string }
	newer := map[agent]bool{}
	for _, s := range sessions {
		of := agent{s.V.Agent, s.V.Instance}
		if newer[of] {
			all = append(all, k.LostAfter())
		} else {
			all = append(all, silence(k, s.V))
		}
		newer[of] = true
	}
	return all
}

// Gone returns a function that reports whether an agent of the session's runner is gone: the
// agent of the session itself is, because it knows its own steps. The function gets the name of
// the agent's process, as its sessions have it.
func Gone(tx *kernel.Tx, s Session) (func(instance string) bool, error) {
	sessions, err := tx.Store.Sessions(tx.Ctx, s.Runner, 20)
	if err != nil {
		return nil, err
	}
	online := map[string]bool{}
	for i, state := range sessionStates(tx.Kernel, sessions) {
		online[sessions[i].V.Instance] = online[sessions[i].V.Instance] || state == "online"
	}
	online[s.Instance] = false
	return func(instance string) bool { return !online[instance] }, nil
}

// customerOf returns the mode that the customer set for a runner: the least restrictive
// mode of its online agents. It returns nil if an online agent is enabled, or if no
// agent is online.
func customerOf(sessions []Session) *fairlead.CustomerMode {
	var mildest *fairlead.CustomerMode
	for _, s := range sessions {
		if s.State != "online" {
			continue
		}
		if s.Customer == nil {
			return nil
		}
		if mildest == nil || s.Customer.Mode.Compare(mildest.Mode) < 0 {
			mildest = s.Customer
		}
	}
	return mildest
}

// sharedCursor begins the cursors of a listing that has reached the shared runners. No
// runner's name contains a colon.
const sharedCursor = "shared:"

// Runners lists the org's runners by name, and then the shared runners.
func (f *Fleet) Runners(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Runner, string, error) {
	after, shared := strings.CutPrefix(q.After, sharedCursor)
	var p store.Page[store.Runner]
	var err error
	if !shared {
		if p, err = f.Store.Runners(ctx, org, q); err != nil {
			return nil, "", err
		}
		after = ""
	}
	if room := q.Limit - len(p.Items); p.Next == "" && room == 0 && q.Limit > 0 {
		p.Next = sharedCursor // the next page shows whether shared runners exist
	} else if p.Next == "" {
		more, err := f.Store.Runners(ctx, "", fairlead.PageQuery{After: after, Limit: max(0, room)})
		if err != nil {
			return nil, "", err
		}
		p.Items = append(p.Items, more.Items...)
		if more.Next != "" {
			p.Next = sharedCursor + more.Next
		}
	}
	tx := f.Reading(ctx)
	return kernel.TryList(p, nil, func(r store.Runner) (Runner, error) { return WithSessions(tx, r) })
}

// CreateEnrolment creates a single-use token with which one agent enrols at a runner.
// Only an operator can create such a token for a shared runner.
func (f *Fleet) CreateEnrolment(ctx context.Context, by kernel.User, runner string) (token string, expires time.Time, err error) {
	token = identity.NewToken(identity.PrefixEnrolment)
	err = f.Transact(ctx, "create enrolment of runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		expires = tx.Now.Add(EnrolmentTTL)
		if _, err := f.Store.Enrolment(ctx, identity.Hash(token)); err == nil {
			return nil // our own earlier commit, whose outcome was unclear
		}
		tx.PutEnrolment(identity.Hash(token), store.Stored[store.Enrolment]{V: store.Enrolment{Runner: r.V.ID, Expires: expires}})
		return nil
	})
	return token, expires, err
}

// Enrol exchanges an enrolment token for an identity: the holder of the private key of
// pub can open sessions of the runner from now on. The same agent may repeat the
// request if it lost the answer. Another agent is refused.
func (f *Fleet) Enrol(ctx context.Context, token string, pub ed25519.PublicKey) (Runner, error) {
	if len(pub) != ed25519.PublicKeySize {
		return Runner{}, fairlead.Invalid(fairlead.CodeInvalidKey, "an agent's public key is %d bytes of Ed25519", ed25519.PublicKeySize)
	}
	keyID, hash := events.KeyID(pub), identity.Hash(token)
	refused := &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeEnrolmentRefused,
		Message: "the enrolment token is wrong, expired or used",
		Hint:    "Create a new one with {runner.enrol}."}
	var out Runner
	err := f.Transact(ctx, "enrol agent", func(tx *kernel.Tx) error {
		e, err := f.Store.Enrolment(ctx, hash)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			return refused
		}
		if err != nil {
			return err
		}
		if !tx.Now.Before(e.V.Expires) || (e.V.UsedBy != "" && e.V.UsedBy != keyID) {
			return refused
		}
		a, err := f.Store.Agent(ctx, e.V.Runner, keyID)
		if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
			return err
		}
		if !a.V.Revoked.IsZero() {
			return revoked(fairlead.CodeEnrolmentRefused)
		}
		r, err := RunnerByID(tx, e.V.Runner)
		if err != nil {
			return err
		}
		if out, err = runnerOf(tx, r); err != nil || e.V.UsedBy == keyID {
			return err
		}
		tx.Cause, tx.Request = kernel.RunnerActor(r.ID, r.Name), store.Request{Org: r.Org, Action: "enrol-runner"}
		e.V.UsedBy = keyID
		a.V = store.Agent{Runner: e.V.Runner, PublicKey: pub, Enrolled: tx.Now}
		tx.PutAgent(keyID, a)
		tx.PutEnrolment(hash, e)
		return nil
	})
	return out, err
}

// RunnerByID returns a runner by its identifier.
func RunnerByID(tx *kernel.Tx, id fairlead.RunnerID) (store.Runner, error) {
	_, r, err := byID(tx, id)
	return r, err
}

func byID(tx *kernel.Tx, id fairlead.RunnerID) (store.RunnerName, store.Runner, error) {
	n, err := tx.Store.RunnerName(tx.Ctx, id)
	if err != nil {
		return n.V, store.Runner{}, err
	}
	r, err := tx.Store.Runner(tx.Ctx, n.V.Org, n.V.Name)
	return n.V, r.V, err
}
