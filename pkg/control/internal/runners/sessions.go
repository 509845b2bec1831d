package runners

import (
	"context"
	"crypto/ed25519"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/store"
)

// NewChallenge returns a nonce that is valid for one session request.
func (f *Fleet) NewChallenge() string {
	return f.Minter.Mint(identity.Claims{Purpose: identity.Challenge, Subject: f.IDs("n"), Expires: f.Now().Add(challengeTTL)})
}

// SessionProof proves an agent's identity: by its enrolled key, by its AWS role, or by
// a token of an OIDC issuer together with a key.
type SessionProof struct {
	Runner    fairlead.RunnerID
	Nonce     string // of a challenge, or of a session that the request renews
	Statement []byte // the signed bytes
	PublicKey ed25519.PublicKey
	Signature []byte
	AWS       *AWSProof     // replaces a key and its signature
	OIDC      *OIDCProof    // used with a key that need not be enrolled
	Stack     *SessionStack // set by a runner in a customer's stack
	Instance  string
	Version   string
	Protocol  string
	Capacity  int
	// Report is the agent's first heartbeat in this session; nil: the agent sends it later.
	Report *Heartbeat
}

// OpenedSession is what an agent gets with a session that it opened or renewed. The
// session's Isolation is what the agent reported before this request.
type OpenedSession struct {
	Session
	Bearer string // the session's token
	// Renewal is the nonce for the next renewal of the session; "": the session is not renewed
	// again. The nonce is valid until the session expires.
	Renewal  string
	Settings AgentSettings
	Reported *StackInstall // the install of the stack about which the agent reported; nil: none
}

// StackInstall is the install that a customer's stack was prepared for.
type StackInstall struct {
	Org  fairlead.OrgID
	ID   fairlead.InstallID
	Name string
}

// proven is what a proof showed of an agent.
type proven struct {
	agent  string
	shared string // the identity that all agents of a role, or of an OIDC subject, have in common; "": the key of an enrolled agent
	role   *awsiam.Identity
	token  *tokenProof
}

// prove verifies an agent's proof. If the proof has parts of two kinds, no rule decides
// which part counts, so prove refuses it.
func (f *Fleet) prove(ctx context.Context, runner store.Runner, p SessionProof) (proven, error) {
	switch byKey := len(p.PublicKey)+len(p.Signature) > 0; {
	case p.OIDC != nil && p.AWS == nil:
		token, err := f.proveToken(ctx, runner, p)
		return proven{agent: token.key, shared: "oidc " + token.Issuer + " " + token.Subject, token: &token}, err
	case p.AWS == nil:
		agent, err := f.proveKey(ctx, runner, p)
		return proven{agent: agent}, err
	case byKey || p.OIDC != nil:
		return proven{}, sessionRefused()
	default:
		role, err := f.proveRole(ctx, runner, p)
		return proven{agent: role.RoleID + ":" + role.Session, shared: "aws " + role.Partition + " " + role.RoleID, role: &role}, err
	}
}

// admit checks in the commit of a new session that the runner still trusts what the proof
// showed.
func (by proven) admit(tx *kernel.Tx, runner store.Runner) error {
	switch {
	case by.role != nil:
		return admitRole(tx, runner, *by.role)
	case by.token != nil:
		return admitToken(tx, runner, *by.token)
	}
	return nil
}

// OpenSession verifies an agent's proof, and opens a session, or renews the session of the
// proof's nonce. Each nonce opens one session, or renews its session once. The same request
// may be repeated if its answer was lost.
func (f *Fleet) OpenSession(ctx context.Context, p SessionProof) (OpenedSession, error) {
	nonce, err := f.Minter.Read(p.Nonce, f.Now(), identity.Challenge, identity.Renewal)
	if err != nil {
		return OpenedSession{}, sessionRefused()
	}
	if p.Report != nil {
		if err := p.Report.check(); err != nil {
			return OpenedSession{}, err
		}
	}
	name, runner, err := byID(f.Reading(ctx), p.Runner)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return OpenedSession{}, sessionRefused()
	}
	if err != nil {
		return OpenedSession{}, err
	}
	by, err := f.prove(ctx, runner, p)
	if err != nil {
		return OpenedSession{}, err
	}
	var r sessionRequest
	if nonce.Purpose == identity.Renewal {
		r, err = f.renewSession(ctx, runner, p, by, nonce)
	} else {
		r, err = f.createSession(ctx, runner, p, by)
	}
	if err != nil {
		return OpenedSession{}, err
	}
	out := OpenedSession{Session: sessionOf(f.Kernel, r.session)}
	if r.stack != nil && f.Now().Sub(r.stack.Reported) < freshReport {
		out.Reported = &StackInstall{Org: r.stack.Org, ID: r.stack.Install, Name: r.stack.InstallName}
	}
	out.Isolation = r.isolation
	out.Bearer = f.Minter.Mint(identity.Claims{Purpose: identity.Session, Subject: string(runner.ID) + "/" + string(r.session.ID), Expires: r.session.Expires})
	if r.session.Expires.Before(lastExpiry(r.session)) {
		out.Renewal = f.Minter.Mint(identity.Claims{Purpose: identity.Renewal, Subject: string(runner.ID) + renewalSeparator + string(r.session.ID), Epoch: r.session.Renewals, Expires: r.session.Expires})
	}
	// Without its configuration the agent would start jobs in the wrong place.
	if r.stack == nil || r.stack.Adopted {
		out.Settings, err = settings(f.Reading(ctx), name, &runner, "")
		return out, err
	}
	if err := f.adoptBucket(ctx, runner); err != nil {
		f.Logger.Warn("cannot configure the stack's bucket as a runner's state storage; its next session tries again", "runner", runner.Name, "error", err)
	}
	out.Settings, err = f.AgentSettings(ctx, runner.ID, "")
	return out, err
}

// freshReport is for how long after a change of its report a stack's sessions look for a deployment that waits for the change. A
// deployment that is created later reads the new report. An hour has six renewals, in case that one of them fails.
const freshReport = time.Hour

// sessionRequest is the outcome of a request for a session.
type sessionRequest struct {
	session   store.Session
	isolation string       // that the session had before the request
	stack     *store.Stack // with the agent's report about it; nil: the agent reported none
}

// renewalSeparator separates the identifiers in the subject of a renewal's nonce. A proof of an
// AWS role has the nonce in a signed header, and package awsiam permits no slash there.
const renewalSeparator = "-"

// lastExpiry returns when the session expires at the latest.
func lastExpiry(s store.Session) time.Time { return s.Opened.Add(MaxSessionAge) }

// createSession opens a session.
func (f *Fleet) createSession(ctx context.Context, runner store.Runner, p SessionProof, by proven) (sessionRequest, error) {
	id := fairlead.SessionID(f.IDs(fairlead.PrefixSession))
	var out sessionRequest
	err := f.Transact(ctx, "open session of runner "+runner.Name, func(tx *kernel.Tx) error {
		made, err := tx.Seen(kernel.Once{Org: runner.Org, Route: "create-session", Key: identity.Hash(p.Nonce), Body: id}, string(id))
		if err != nil || made != "" {
			if fairlead.CodeOf(err) == fairlead.CodeIdempotencyKeyReused {
				return sessionRefused() // the nonce was used for another session
			}
			return err
		}
		if err := by.admit(tx, runner); err != nil {
			return err
		}
		s := store.Session{ID: id, Org: runner.Org, Runner: runner.ID, Agent: by.agent, Enrolled: by.shared == "", Opened: tx.Now}
		if out, err = accept(tx, s, runner, p, by); err != nil {
			return err
		}
		if err := countSession(tx, out.session, by.shared); err != nil {
			return err
		}
		tx.PutSession(store.Stored[store.Session]{V: out.session})
		return recordOnline(tx, runner.ID)
	})
	if err == nil && out.session.ID == "" { // our own earlier commit, whose outcome was unclear
		var r store.Stored[store.Session]
		r, err = f.Store.Session(ctx, runner.ID, id)
		out.session = r.V
	}
	return out, err
}

// renewSession extends the session that the nonce names. It writes one record, because an
// idle runner is nothing but renewals. The session counts its renewals, so the nonce of
// an earlier renewal is refused.
//
// A change of the runner's rule during the renewal takes effect at the next renewal.
func (f *Fleet) renewSession(ctx context.Context, runner store.Runner, p SessionProof, by proven, nonce identity.Claims) (sessionRequest, error) {
	of, id, _ := strings.Cut(nonce.Subject, renewalSeparator)
	if of != string(runner.ID) {
		return sessionRequest{}, sessionRefused()
	}
	var out sessionRequest
	err := f.Transact(ctx, "renew session "+id, func(tx *kernel.Tx) error {
		r, err := store.Optional(f.Store.Session(ctx, runner.ID, fairlead.SessionID(id)))
		if err != nil {
			return err
		}
		s := r.V
		out = sessionRequest{session: s, isolation: s.Isolation}
		switch {
		case r.Version == 0 || s.Ended || s.Agent != by.agent || s.Enrolled != (by.shared == ""):
			return sessionRefused()
		case s.Renewals == nonce.Epoch+1:
			return nil // the answer to this renewal was lost
		case s.Renewals != nonce.Epoch || !tx.Now.Before(s.Expires):
			return sessionRefused()
		}
		if sessionState(tx.Kernel, s) == "lost" {
			if err := recordOnline(tx, runner.ID); err != nil {
				return err
			}
		}
		if by.token != nil { // a token that is not bound to the request is for one key
			if err := admitToken(tx, runner, *by.token); err != nil {
				return err
			}
		}
		s.Renewals++
		if out, err = accept(tx, s, runner, p, by); err != nil {
			return err
		}
		r.V = out.session
		tx.PutSession(r)
		return nil
	})
	return out, err
}

// accept records in the session what the agent's request shows, and the new expiry. It
// records the agent's report about its stack.
func accept(tx *kernel.Tx, s store.Session, runner store.Runner, p SessionProof, by proven) (sessionRequest, error) {
	out := sessionRequest{isolation: s.Isolation}
	if p.Stack != nil {
		stack, err := recordStack(tx, runner, *p.Stack)
		if err != nil {
			return out, err
		}
		out.stack = &stack
	}
	s.Instance, s.Version, s.Protocol = fairlead.Clip(p.Instance, 200), fairlead.Clip(p.Version, 100), fairlead.Clip(p.Protocol, 20)
	s.Capacity, s.LastSeen, s.Suspect = p.Capacity, tx.Now, time.Time{}
	if s.Expires = tx.Now.Add(SessionTTL); s.Expires.After(lastExpiry(s)) {
		s.Expires = lastExpiry(s)
	}
	if by.token != nil {
		s.Account, s.Trust, s.TrustRev, s.Subject = by.token.by.account, by.token.by.trust, by.token.by.rev, by.token.Subject
	}
	if p.Report != nil {
		report := *p.Report
		report.Configured = runner.Revision == "" || runner.Revision == report.Configuration
		report.record(&s)
	}
	out.session = s
	return out, nil
}

// heldKey returns the id of the key, or an error if the key's signature is not valid.
func heldKey(p SessionProof) (string, error) {
	if len(p.PublicKey) != ed25519.PublicKeySize || !ed25519.Verify(p.PublicKey, p.Statement, p.Signature) {
		return "", sessionRefused()
	}
	return events.KeyID(p.PublicKey), nil
}

// proveKey returns the id of the key. It returns an error if the key's signature is not
// valid, or if the key is not enrolled at the runner or is revoked.
func (f *Fleet) proveKey(ctx context.Context, r store.Runner, p SessionProof) (string, error) {
	keyID := events.KeyID(p.PublicKey)
	agent, err := f.Store.Agent(ctx, r.ID, keyID)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return "", sessionRefused()
	}
	if err != nil {
		return "", err
	}
	if len(agent.V.PublicKey) != ed25519.PublicKeySize || !ed25519.Verify(agent.V.PublicKey, p.Statement, p.Signature) {
		return "", sessionRefused()
	}
	if !agent.V.Revoked.IsZero() {
		return "", revoked(fairlead.CodeSessionRefused)
	}
	return keyID, nil
}

func sessionRefused() *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeSessionRefused,
		Message: "the agent could not prove that it belongs to the runner",
		Hint:    "Enrol it again with a new token: {runner.enrol}."}
}

// Heartbeat is an agent's report about itself.
type Heartbeat struct {
	Capacity  int
	Running   []string
	Draining  bool
	Ending    bool
	Customer  *fairlead.CustomerMode // nil: enabled
	Unhealthy string                 // why the agent starts no jobs; "": no known reason
	// Isolation is what separates the processes of jobs from the runner and from other
	// jobs: landlock, container or none; "": not reported.
	Isolation string
	WarmSteps int  // its steps that were started ahead and wait for a job
	Seed      bool // it has a seed of install keys
	// Seeds are the identifiers of its seeds, the current one first. They are set only in the first heartbeat and after a change.
	Seeds []string
	// Configuration is the revision of the runner's configuration that the agent uses, and Configured reports whether it is the newest
	// one. OpenSession sets Configured itself.
	Configuration string
	Configured    bool
}

// maxRunning bounds how many jobs a heartbeat may name.
const maxRunning = 1000

// maxJobID bounds the stored length of a job's identifier in a heartbeat, in bytes.
// Real identifiers have 30.
const maxJobID = 64

// maxSeeds is how many seeds of install keys a heartbeat may name.
const maxSeeds = 10

// maxReason bounds the stored length of a customer's reason, in bytes.
const maxReason = 800

// maxUnhealthy bounds the stored length of Heartbeat.Unhealthy, in bytes.
const maxUnhealthy = 1000

func (h Heartbeat) check() error {
	long := func(id string) bool { return len(id) > maxJobID }
	if len(h.Running) > maxRunning || h.Capacity < 0 || slices.ContainsFunc(h.Running, long) {
		return fairlead.Invalid(fairlead.CodeInvalidHeartbeat, "a heartbeat names at most %d jobs, each by up to %d bytes", maxRunning, maxJobID)
	}
	if len(h.Seeds) > maxSeeds || slices.ContainsFunc(h.Seeds, long) {
		return fairlead.Invalid(fairlead.CodeInvalidHeartbeat, "a heartbeat names at most %d seeds, each by up to %d bytes", maxSeeds, maxJobID)
	}
	return nil
}

// record stores the report in the session.
func (h Heartbeat) record(s *store.Session) {
	s.Capacity, s.Running, s.WarmSteps, s.Draining = h.Capacity, h.Running, h.WarmSteps, h.Draining
	if s.Customer = h.Customer; h.Customer != nil {
		s.Customer.Reason = fairlead.Clip(h.Customer.Reason, maxReason)
	}
	s.Unhealthy, s.Isolation = fairlead.Clip(h.Unhealthy, maxUnhealthy), h.Isolation
	// An agent without the configuration does not know yet whether its jobs have a seed.
	s.Seedless = !h.Seed && (h.Configured || s.Seedless)
}

// HeartbeatSession records an agent's heartbeat.
func (f *Fleet) HeartbeatSession(ctx context.Context, s Session, h Heartbeat) error {
	if err := h.check(); err != nil {
		return err
	}
	return f.Transact(ctx, "heartbeat of session "+string(s.ID), func(tx *kernel.Tx) error {
		r, err := f.Store.Session(ctx, s.Runner, s.ID)
		if err != nil {
			return err
		}
		if sessionState(tx.Kernel, r.V) == "lost" && !h.Ending { // a session that is not lost means that the runner is recorded as online already
			if err := recordOnline(tx, s.Runner); err != nil {
				return err
			}
		}
		h.record(&r.V)
		r.V.LastSeen, r.V.Suspect, r.V.Ended = tx.Now, time.Time{}, r.V.Ended || h.Ending
		tx.PutSession(r)
		return nil
	})
}
