package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

const (
	// WarmFor is how long a warm step waits for a job.
	WarmFor = 5 * time.Minute
	// MaxAhead is the largest number of warm steps of one agent for one deployment. It covers the seven jobs that
	// follow the first one in a chain of four components.
	MaxAhead = 8
	// MaxWarm is the largest number of warm steps of one agent.
	MaxWarm = 50
	// newestWarm is how many warm steps of a runner are read, the newest first. Those that wait are among them unless
	// its agents started more within WarmFor; then a job may start a step of its own.
	newestWarm = 2 * MaxWarm
)

// ClaimOption changes what a claim does.
type ClaimOption int

// IntoWarmStep lets a claim assign its job to a warm step of the session's agent.
const IntoWarmStep ClaimOption = 1

// AheadRequest is an agent's request to start steps before their jobs are known.
type AheadRequest struct {
	Job   fairlead.JobID        // a job that the agent has claimed: the next jobs of its deployment get steps; "": none
	Epoch int64                 // of that claim
	First int                   // how many steps to have for the first jobs of deployments
	Most  int                   // the largest number of steps to start now
	Have  []fairlead.WarmStepID // the agent's warm steps
}

// WarmStep is a warm step to start, with the token that it waits with.
type WarmStep struct {
	ID         fairlead.WarmStepID
	Token      string
	Role       component.Role        // of the operations that it can run
	Size       job.Size              // that its jobs ask for; zero: the size that the runner is configured for
	Install    fairlead.InstallID    // whose jobs it can run; "": of every install of the runner
	Deployment fairlead.DeploymentID // whose jobs it can run; "": of every deployment
	Expires    time.Time             // it gets no job after this time
	Bindable   bool                  // the agent may bind the token to an AWS role
}

// StartAhead returns the warm steps that the session's agent must start, and records them. It counts the steps that
// the agent has already. It ends recorded steps that the agent does not name: their answer was lost, so no step has
// their tokens.
func (ex *Execution) StartAhead(ctx context.Context, s runners.Session, in AheadRequest) ([]WarmStep, error) {
	in.Most = min(in.Most, MaxWarm)
	ids := make([]fairlead.WarmStepID, max(0, in.Most))
	for i := range ids {
		ids[i] = fairlead.WarmStepID(ex.IDs(fairlead.PrefixWarmStep))
	}
	var out []WarmStep
	err := ex.Transact(ctx, "start steps ahead for runner "+string(s.Runner), func(tx *kernel.Tx) error {
		out = nil
		known, err := waiting(tx, s)
		if err != nil {
			return err
		}
		var have []store.WarmStep
		for _, w := range known {
			if slices.Contains(in.Have, w.V.ID) {
				have = append(have, w.V)
				continue
			}
			w.V.Ended = true
			tx.PutWarmStep(w)
		}
		wanted, err := wantedAhead(tx, s, in)
		if err != nil {
			return err
		}
		for range in.First {
			wanted = append(wanted, store.WarmStep{Role: component.ReadOnly}) // each deployment begins with plans; the size that they ask for is not known
		}
		for _, w := range wanted {
			if take(&have, w) {
				continue
			}
			if len(out) == len(ids) {
				break
			}
			w.ID, w.Runner, w.Instance, w.Created, w.Expires = ids[len(out)], s.Runner, s.Instance, tx.Now, tx.Now.Add(WarmFor)
			tx.PutWarmStep(store.Stored[store.WarmStep]{V: w})
			out = append(out, WarmStep{ID: w.ID, Role: w.Role, Size: w.Size, Install: w.Install, Deployment: w.Deployment, Expires: w.Expires, Bindable: ex.AWS != nil,
				Token: ex.Minter.Mint(identity.Claims{Purpose: identity.Warm, Subject: string(w.Runner) + "/" + string(w.ID)})})
		}
		return nil
	})
	return out, err
}

// waiting returns the warm steps of the session's agent that wait for a job, oldest first.
func waiting(tx *kernel.Tx, s runners.Session) ([]store.Stored[store.WarmStep], error) {
	all, err := tx.Store.WarmSteps(tx.Ctx, s.Runner, newestWarm)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(w store.Stored[store.WarmStep]) bool { return w.V.Instance != s.Instance || !w.V.Waits(tx.Now) })
	slices.Reverse(all)
	return all, nil
}

// take removes a warm step that serves the wanted purpose from have, and reports whether there was one.
func take(have *[]store.WarmStep, wanted store.WarmStep) bool {
	for i, w := range *have {
		if w.Role == wanted.Role && w.Size == wanted.Size && w.Deployment == wanted.Deployment {
			*have = append((*have)[:i:i], (*have)[i+1:]...)
			return true
		}
	}
	return false
}

// wantedAhead returns a warm step for each next job of the deployment whose job the agent has claimed.
func wantedAhead(tx *kernel.Tx, s runners.Session, in AheadRequest) ([]store.WarmStep, error) {
	if in.Job == "" {
		return nil, nil
	}
	j, err := runnersJob(tx, s, in.Job)
	if err != nil {
		return nil, err
	}
	if j.V.Lease.Epoch != in.Epoch { // a job that has ended since is no reason to start nothing
		return nil, kernel.JobError(&job.StaleError{Job: in.Job, State: j.V.State, Epoch: j.V.Lease.Epoch, Given: in.Epoch})
	}
	if j.V.Deployment == "" {
		return nil, nil
	}
	d, err := tx.Store.Deployment(tx.Ctx, j.V.Deployment)
	if err != nil {
		return nil, err
	}
	var out []store.WarmStep
	for _, n := range d.V.Ahead(MaxAhead) {
		t, _ := component.Of(n.Type)
		if role, ok := t.RoleOf(n.Operation, n.Role); ok {
			out = append(out, store.WarmStep{Role: role, Size: n.Size, Install: d.V.Install, Deployment: d.V.ID})
		}
	}
	return out, nil
}

// assignWarm assigns the job to a warm step of the session's agent, in the commit that claims the job. A step that
// already polls is better than one that still starts. It returns "" if no step fits.
func assignWarm(tx *kernel.Tx, s runners.Session, j store.Job) (fairlead.WarmStepID, error) {
	all, err := waiting(tx, s)
	if err != nil {
		return "", err
	}
	var best store.Stored[store.WarmStep]
	for _, w := range all {
		if w.V.Fits(j) && (best.Version == 0 || best.V.Step == "" && w.V.Step != "") {
			best = w
		}
	}
	if best.Version == 0 {
		return "", nil
	}
	best.V.Job, best.V.Epoch = j.ID, j.Lease.Epoch
	tx.PutWarmStep(best)
	markAssigned(tx, best.V)
	return best.V.ID, nil
}

// markAssigned writes the marker of the warm step after the commit.
func markAssigned(tx *kernel.Tx, w store.WarmStep) {
	if tx.CancelMarks == nil || w.Install == "" {
		return
	}
	tx.OnCommit(func(ctx context.Context) {
		if err := tx.CancelMarks.Put(ctx, cancelmark.OfWarmStep(w.Install, w.ID)); err != nil {
			tx.Logger.Warn("cannot write the marker of a warm step; the step learns of its job when it asks again", "warm", w.ID, "job", w.Job, "error", err)
		}
	})
}

// WarmMarker returns the place of the marker that tells the warm step to ask for its job, with credentials that read
// only this marker. If there is none, the error is of KindNotFound, and the step asks often instead.
func (ex *Execution) WarmMarker(ctx context.Context, h WarmHolder) (identity.Access, error) {
	w, err := ex.Store.WarmStep(ctx, h.Runner, h.ID)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return identity.Access{}, over(h.ID)
	}
	if err != nil {
		return identity.Access{}, err
	}
	none := &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeNoMarker, Message: fmt.Sprintf("warm step %s has no marker", h.ID)}
	if ex.Access == nil || ex.CancelMarks == nil || w.V.Install == "" {
		return identity.Access{}, none // a step for every install cannot be limited to the markers of one
	}
	d, err := ex.Store.Deployment(ctx, w.V.Deployment)
	if err != nil {
		return identity.Access{}, err
	}
	app, err := catalog.AppOfInstall(ex.Reading(ctx), d.V.Org, d.V.InstallName, d.V.Install)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := ex.Access.Grant(ctx, identity.Scope{Runner: h.Runner, Install: w.V.Install, App: app, Warm: h.ID})
	if err != nil || a.Cancel == (cancelmark.Place{}) {
		none.Err = err
		return identity.Access{}, none
	}
	return a, nil
}

// WarmHolder names the warm step that a warm token was issued to.
type WarmHolder struct {
	Runner         fairlead.RunnerID
	ID             fairlead.WarmStepID
	kernel.Binding // also of the launch token that the warm token buys
}

// AuthenticateWarm returns the warm step that a warm token names. It does not check whether the warm step still waits:
// each use case does.
func (ex *Execution) AuthenticateWarm(token string) (WarmHolder, error) {
	claims, err := ex.Minter.Read(token, ex.Now(), identity.Warm)
	if err != nil {
		return WarmHolder{}, err
	}
	runner, id, _ := strings.Cut(claims.Subject, "/")
	return WarmHolder{fairlead.RunnerID(runner), fairlead.WarmStepID(id), kernel.BindingOf(token, claims)}, nil
}

// over returns the error for a warm step that gets no job any more.
func over(id fairlead.WarmStepID) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeWarmStepOver,
		Message: fmt.Sprintf("warm step %s gets no job: its deployment or its time is over, or its agent ended it", id)}
}

// AwaitJob exchanges a warm token for the claim of the job that is assigned to the warm step, with its launch token.
// It waits for an assignment for the duration wait at most, and then returns ErrNoWork. The same step may repeat the
// request; another step is refused. If the warm step gets no job any more, the error has CodeWarmStepOver, and no
// later claim can assign a job to it. proven states that ProveRole verified the role of the token. Only the first request
// of a step needs that: the later ones have its id, which no other step has.
func (ex *Execution) AwaitJob(ctx context.Context, h WarmHolder, step string, proven bool, wait time.Duration) (Claim, error) {
	if ex.Intervals.Prompt {
		wait = 0
	}
	var w store.WarmStep
	err := ex.Wait(ctx, string(h.ID), wait, func(ctx context.Context) (bool, error) {
		var err error
		w, err = ex.lookWarm(ctx, h, step, proven)
		return w.Job != "" || w.Ended, err
	})
	switch {
	case err != nil:
		return Claim{}, err
	case w.Ended:
		return Claim{}, over(h.ID)
	case w.Job == "":
		return Claim{}, ErrNoWork
	}
	r, err := ex.Held(ctx, kernel.Holder{Job: w.Job, Epoch: w.Epoch})
	if k := fairlead.KindOf(err); k == fairlead.KindStale || k == fairlead.KindNotFound {
		return Claim{}, over(h.ID) // the claim was released, canceled or lost
	}
	if err != nil {
		return Claim{}, err
	}
	launch := ex.launchToken(w.Job, w.Epoch)
	if h.Role != "" {
		launch = bound.Token(launch, h.Role)
	}
	return Claim{Job: JobOf(r.V), WarmStep: h.ID, LaunchToken: launch}, nil
}

// lookWarm reads a warm step. It records the step's first request. If the warm step can get no job any more, lookWarm
// records its end, so that a claim at the same time cannot assign a job to it.
func (ex *Execution) lookWarm(ctx context.Context, h WarmHolder, step string, proven bool) (store.WarmStep, error) {
	var out store.WarmStep
	err := ex.Transact(ctx, "look at warm step "+string(h.ID), func(tx *kernel.Tx) error {
		r, err := ex.Store.WarmStep(ctx, h.Runner, h.ID)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			return over(h.ID)
		}
		if err != nil {
			return err
		}
		if r.V.Step != "" && r.V.Step != step {
			return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeWarmTokenUsed,
				Message: fmt.Sprintf("the token of warm step %s was used by another step", h.ID)}
		}
		write := r.V.Step == ""
		if write && h.Role != "" && !proven {
			return unproven(h.Binding, nil)
		}
		r.V.Step = step
		if r.V.Job == "" && !r.V.Ended {
			useless, err := useless(tx, r.V)
			if err != nil {
				return err
			}
			r.V.Ended, write = useless, write || useless
		}
		if out = r.V; write {
			tx.PutWarmStep(r)
		}
		return nil
	})
	return out, err
}

// useless reports whether no job will come for a warm step without a job.
func useless(tx *kernel.Tx, w store.WarmStep) (bool, error) {
	if !w.Waits(tx.Now) {
		return true, nil
	}
	if _, err := tx.Store.RunnerName(tx.Ctx, w.Runner); fairlead.KindOf(err) == fairlead.KindNotFound {
		return true, nil
	} else if err != nil || w.Deployment == "" {
		return false, err
	}
	d, err := tx.Store.Deployment(tx.Ctx, w.Deployment)
	return d.V.State.Final() || d.V.Stop != "", err
}

// EndWarmStep ends a warm step of the session's runner, so that no claim assigns a job to it. If a job was assigned
// already and its claim still holds, EndWarmStep returns the claim, without a launch token, and ends nothing: the
// answer of the claim may have been lost, and the step may run the job. Otherwise it returns ErrNoWork. If the record
// is removed already, the error is of KindNotFound.
func (ex *Execution) EndWarmStep(ctx context.Context, s runners.Session, id fairlead.WarmStepID) (Claim, error) {
	var w store.WarmStep
	err := ex.Transact(ctx, "end warm step "+string(id), func(tx *kernel.Tx) error {
		r, err := ex.Store.WarmStep(ctx, s.Runner, id)
		w = r.V
		if err != nil || r.V.Ended || r.V.Job != "" {
			return err
		}
		r.V.Ended = true
		tx.PutWarmStep(r)
		return nil
	})
	if err != nil {
		return Claim{}, err
	}
	if w.Job == "" {
		return Claim{}, ErrNoWork
	}
	r, err := ex.Held(ctx, kernel.Holder{Job: w.Job, Epoch: w.Epoch})
	if k := fairlead.KindOf(err); k == fairlead.KindStale || k == fairlead.KindNotFound {
		err = ErrNoWork // the attempt has ended
	}
	if err != nil {
		return Claim{}, err
	}
	return Claim{Job: JobOf(r.V), WarmStep: id}, nil
}

// Attempt names one attempt of a job.
type Attempt struct {
	Job   fairlead.JobID
	Epoch int64
}

// Adopted are the steps of agents that are gone.
type Adopted struct {
	Claims []Claim               // of the steps that have a job, without launch tokens
	Ended  []fairlead.WarmStepID // of the warm steps that get no job: their processes can be killed
}

// AdoptSteps returns which of the given steps of the session's runner were started by agents that are gone. Another agent
// of the runner can watch them then. A step whose agent is online, or whose lease is over, is not in the answer. AdoptSteps
// ends a warm step that has no job, because no claim of another agent assigns one to it.
func (ex *Execution) AdoptSteps(ctx context.Context, s runners.Session, attempts []Attempt, warm []fairlead.WarmStepID) (Adopted, error) {
	tx := ex.Reading(ctx)
	gone, err := runners.Gone(tx, s)
	if err != nil {
		return Adopted{}, err
	}
	var out Adopted
	for _, at := range attempts {
		r, err := runnersJob(tx, s, at.Job)
		if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && (!r.V.State.Leased() || r.V.Lease.Epoch != at.Epoch) {
			continue
		}
		if err != nil {
			return Adopted{}, err
		}
		by, err := store.Optional(ex.Store.Session(ctx, s.Runner, r.V.Lease.Session)) // a session's record expires after its agent is lost
		if err != nil {
			return Adopted{}, err
		}
		if gone(by.V.Instance) {
			out.Claims = append(out.Claims, Claim{Job: JobOf(r.V)})
		}
	}
	for _, id := range warm {
		w, err := ex.Store.WarmStep(ctx, s.Runner, id)
		if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && !gone(w.V.Instance) {
			continue
		}
		if err != nil {
			return Adopted{}, err
		}
		c, err := ex.EndWarmStep(ctx, s, id)
		switch {
		case errors.Is(err, ErrNoWork):
			out.Ended = append(out.Ended, id)
		case err != nil:
			return Adopted{}, err
		default:
			out.Claims = append(out.Claims, c)
		}
	}
	return out, nil
}

// launchToken returns the token that starts one epoch of a job.
func (ex *Execution) launchToken(id fairlead.JobID, epoch int64) string {
	return ex.Minter.Mint(identity.Claims{Purpose: identity.Launch, Subject: string(id), Epoch: epoch})
}
