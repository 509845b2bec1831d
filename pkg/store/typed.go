package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

func missing(code fairlead.Code, name string) func() error {
	return func() error { return fairlead.NotFound(code, name) }
}

// getOr returns a record. If there is no record, it returns the parameter absent with
// version 0.
func getOr[T any](ctx context.Context, s *Store, key engine.Key, absent T) (Stored[T], error) {
	r, err := Optional(get[T](ctx, s, key, missing(fairlead.CodeRecordNotFound, key.Sort)))
	if err == nil && r.Version == 0 {
		r.V = absent
	}
	return r, err
}

// behind returns the page of the records that a page of references refers to.
func behind[R, T any](refs Page[R], err error, find func(R) (Stored[T], error)) (Page[T], error) {
	if err != nil {
		return Page[T]{}, err
	}
	p := Page[T]{Next: refs.Next}
	for _, r := range refs.Items {
		v, err := find(r.V)
		if err != nil {
			return Page[T]{}, err
		}
		p.Items = append(p.Items, v)
	}
	return p, nil
}

// Apps and versions.

// App returns an app by name.
func (s *Store) App(ctx context.Context, org fairlead.OrgID, name string) (Stored[App], error) {
	return get[App](ctx, s, appKey(org, name), missing(fairlead.CodeAppNotFound, name))
}

// Apps lists apps by name.
func (s *Store) Apps(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[App], error) {
	return query[App](ctx, s, engine.Query{Partition: appsPartition(org), After: q.After, Limit: q.Limit})
}

// Version returns an app version.
func (s *Store) Version(ctx context.Context, id fairlead.VersionID) (Stored[Version], error) {
	return get[Version](ctx, s, versionKey(id), missing(fairlead.CodeVersionNotFound, string(id)))
}

// VersionRef is the reference from an app to a version. The references are in order of
// publication.
type VersionRef struct {
	ID fairlead.VersionID `json:"id"`
}

// Versions lists the versions of an app, newest first.
func (s *Store) Versions(ctx context.Context, app fairlead.AppID, q fairlead.PageQuery) (Page[Version], error) {
	refs, err := query[VersionRef](ctx, s, engine.Query{Partition: appPartition(app), Prefix: versionRefPrefix, After: q.After, Limit: q.Limit, Backward: true})
	return behind(refs, err, func(r VersionRef) (Stored[Version], error) { return s.Version(ctx, r.ID) })
}

// PutVersionRef writes the reference from an app to a version.
func (t *Tx) PutVersionRef(app fairlead.AppID, v Version) {
	put(t, versionRefKey(app, v.Created, v.ID), Stored[VersionRef]{V: VersionRef{ID: v.ID}, Version: anyVersion})
}

// VersionName is the reference from a name to a version of an app. It never changes.
type VersionName struct {
	Name    string             `json:"name"`
	ID      fairlead.VersionID `json:"id"`
	Created time.Time          `json:"created"`
}

// VersionNames holds the names of a version, in the order in which they were given. They are no part of the version's
// record, which never changes, and which is large.
type VersionNames struct {
	Names []string `json:"names"`
}

// VersionName returns the version of the app that has the name.
func (s *Store) VersionName(ctx context.Context, app fairlead.AppID, name string) (Stored[VersionName], error) {
	return get[VersionName](ctx, s, versionNameKey(app, name), missing(fairlead.CodeVersionNotFound, name))
}

// VersionNames returns the names of a version. If it has none, the record has version 0.
func (s *Store) VersionNames(ctx context.Context, id fairlead.VersionID) (Stored[VersionNames], error) {
	return getOr(ctx, s, versionNamesKey(id), VersionNames{})
}

// PutVersionName gives the name to a version of the app. The commit fails if the app has a version of that name.
func (t *Tx) PutVersionName(app fairlead.AppID, v VersionName) {
	put(t, versionNameKey(app, v.Name), Stored[VersionName]{V: v})
}

// NamesOfVersions lists the names of an app's versions, in their byte order.
func (s *Store) NamesOfVersions(ctx context.Context, app fairlead.AppID, q fairlead.PageQuery) (Page[VersionName], error) {
	return query[VersionName](ctx, s, engine.Query{Partition: appPartition(app), Prefix: versionNamePrefix, After: q.After, Limit: q.Limit})
}

// DropVersionName removes a name of the app's versions.
func (t *Tx) DropVersionName(app fairlead.AppID, name string) { t.drop(versionNameKey(app, name)) }

// DropVersion removes a version with its reference and the list of its names. These are DropVersionWrites writes.
func (t *Tx) DropVersion(app fairlead.AppID, v Version) {
	t.drop(versionRefKey(app, v.Created, v.ID))
	t.drop(versionNamesKey(v.ID))
	t.drop(versionKey(v.ID))
}

// DropVersionWrites is the number of writes of DropVersion.
const DropVersionWrites = 3

// PutVersionNames writes the names of a version.
func (t *Tx) PutVersionNames(id fairlead.VersionID, r Stored[VersionNames]) {
	put(t, versionNamesKey(id), r)
}

// PutApp writes an app.
func (t *Tx) PutApp(r Stored[App]) { put(t, appKey(r.V.Org, r.V.Name), r) }

// CheckApp makes the commit fail if the app has changed since it was read.
func (t *Tx) CheckApp(r Stored[App]) { t.check(appKey(r.V.Org, r.V.Name), r.Version) }

// DeleteApp removes an app.
func (t *Tx) DeleteApp(r Stored[App]) { remove(t, appKey(r.V.Org, r.V.Name), r) }

// PutVersion writes a new version. The commit fails if the version exists.
func (t *Tx) PutVersion(v Version) { put(t, versionKey(v.ID), Stored[Version]{V: v}) }

// RepairVersion writes a version again after its record was altered.
func (t *Tx) RepairVersion(r Stored[Version]) { put(t, versionKey(r.V.ID), r) }

// Installs and components.

// Install returns an install by name.
func (s *Store) Install(ctx context.Context, org fairlead.OrgID, name string) (Stored[Install], error) {
	return get[Install](ctx, s, installKey(org, name), missing(fairlead.CodeInstallNotFound, name))
}

// Installs lists installs by name.
func (s *Store) Installs(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[Install], error) {
	return query[Install](ctx, s, engine.Query{Partition: installsPartition(org), After: q.After, Limit: q.Limit})
}

// PutInstall writes an install.
func (t *Tx) PutInstall(r Stored[Install]) { put(t, installKey(r.V.Org, r.V.Name), r) }

// DeleteInstall removes an install.
func (t *Tx) DeleteInstall(r Stored[Install]) { remove(t, installKey(r.V.Org, r.V.Name), r) }

// CheckInstall makes the commit fail if the install has changed since it was read.
func (t *Tx) CheckInstall(r Stored[Install]) { t.check(installKey(r.V.Org, r.V.Name), r.Version) }

// Component returns a component of an install. If it was never applied, its state
// is Absent and its version 0.
func (s *Store) Component(ctx context.Context, id fairlead.InstallID, name string) (Stored[Component], error) {
	return getOr(ctx, s, componentKey(id, name), Component{Install: id, Name: name, State: Absent})
}

// Components lists an install's components by name; there are at most a few
// dozen.
func (s *Store) Components(ctx context.Context, id fairlead.InstallID) ([]Stored[Component], error) {
	return all[Component](ctx, s, engine.Query{Partition: installPartition(id), Prefix: componentPrefix})
}

// PutComponent writes a component.
func (t *Tx) PutComponent(r Stored[Component]) {
	put(t, componentKey(r.V.Install, r.V.Name), r)
}

// DeleteComponent removes a component's record.
func (t *Tx) DeleteComponent(r Stored[Component]) {
	remove(t, componentKey(r.V.Install, r.V.Name), r)
}

// Deployments.

// DeploymentRef is the reference from an install to a deployment. The references are in
// order of creation.
type DeploymentRef struct {
	ID fairlead.DeploymentID `json:"id"`
}

// Deployment returns a deployment.
func (s *Store) Deployment(ctx context.Context, id fairlead.DeploymentID) (Stored[Deployment], error) {
	return get[Deployment](ctx, s, deploymentKey(id), missing(fairlead.CodeDeploymentNotFound, string(id)))
}

// Deployments lists the deployments of all installs, newest first. The newest may
// be missing for a moment.
func (s *Store) Deployments(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[Deployment], error) {
	return query[Deployment](ctx, s, engine.Query{Index: engine.List, Partition: deploymentsList(org), Prefix: q.Prefix, After: q.After, Limit: q.Limit, Backward: true})
}

// InstallDeployments lists the deployments of one install, newest first.
func (s *Store) InstallDeployments(ctx context.Context, id fairlead.InstallID, q fairlead.PageQuery) (Page[Deployment], error) {
	refs, err := query[DeploymentRef](ctx, s, engine.Query{Partition: installPartition(id), Prefix: deploymentRefPrefix + q.Prefix, After: q.After, Limit: q.Limit, Backward: true})
	return behind(refs, err, func(r DeploymentRef) (Stored[Deployment], error) { return s.Deployment(ctx, r.ID) })
}

// DueDeployments returns up to limit deployments of which a plan expired, the most overdue first.
func (s *Store) DueDeployments(ctx context.Context, now time.Time, limit int) ([]Stored[Deployment], error) {
	p, err := query[Deployment](ctx, s, engine.Query{Index: engine.Due, Partition: planDuePartition, Limit: limit})
	if err != nil {
		return nil, err
	}
	due := p.Items
	for len(due) > 0 && due[len(due)-1].V.Due().After(now) {
		due = due[:len(due)-1]
	}
	return due, nil
}

// PutDeployment writes a deployment, with its place in the Due index. For a new deployment it also writes the reference
// from its install.
func (t *Tx) PutDeployment(r Stored[Deployment]) {
	id := r.V.ID
	t.subjects = append(t.subjects, string(id))
	put(t, deploymentKey(id), r, list(deploymentsList(r.V.Org), string(id)), due(planDueKey(r.V.Due(), id)))
	if r.Version == 0 {
		put(t, deploymentRefKey(r.V.Install, id), Stored[DeploymentRef]{V: DeploymentRef{ID: id}})
	}
}

// Jobs.

// Job returns a job.
func (s *Store) Job(ctx context.Context, id fairlead.JobID) (Stored[Job], error) {
	return get[Job](ctx, s, jobKey(id), missing(fairlead.CodeJobNotFound, string(id)))
}

// ChangeSet returns the change set of the plan of one attempt of a job.
func (s *Store) ChangeSet(ctx context.Context, id fairlead.JobID, epoch int64) (Stored[ChangeSet], error) {
	return get[ChangeSet](ctx, s, changeSetKey(id, epoch), missing(fairlead.CodePlanNotFound, string(id)))
}

// PutChangeSet writes the change set of an attempt's plan without a precondition:
// an attempt has only one writer.
func (t *Tx) PutChangeSet(id fairlead.JobID, epoch int64, s ChangeSet) {
	put(t, changeSetKey(id, epoch), Stored[ChangeSet]{V: s, Version: anyVersion})
}

// Jobs lists all jobs, newest first. The newest may be missing for a moment.
func (s *Store) Jobs(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[Job], error) {
	return query[Job](ctx, s, engine.Query{Index: engine.List, Partition: jobsList(org), Prefix: q.Prefix, After: q.After, Limit: q.Limit, Backward: true})
}

// DueJobs returns up to limit jobs that the sweep must check now, the most overdue
// first.
func (s *Store) DueJobs(ctx context.Context, now time.Time, limit int) ([]Stored[Job], error) {
	p, err := query[Job](ctx, s, engine.Query{Index: engine.Due, Partition: duePartition, Limit: limit})
	if err != nil {
		return nil, err
	}
	jobs := p.Items
	for len(jobs) > 0 && jobs[len(jobs)-1].V.DueAt.After(now) {
		jobs = jobs[:len(jobs)-1]
	}
	return jobs, nil
}

// ActiveJobs returns a page of the jobs that are queued or leased, and of those that have ended and whose logs are open.
func (s *Store) ActiveJobs(ctx context.Context, after string) (Page[Job], error) {
	return query[Job](ctx, s, engine.Query{Index: engine.Due, Partition: duePartition, After: after})
}

// dueSlack is how much too late the sweep may check a job because PutJob kept the job's
// place in the Due index. A lease is longer than dueSlack. Moving the place costs two
// write units.
const dueSlack = 15 * time.Second

// PutJob writes a job. It keeps the job's place in the Due index if the sweep with this
// place checks the job too early, or at most dueSlack too late. After an early check, the
// sweep moves the place itself. So the place moves once for each lease, not once for each
// renewal.
func (t *Tx) PutJob(r Stored[Job]) {
	due := r.V.Due()
	if due.IsZero() || r.V.DueAt.IsZero() || due.Before(r.V.DueAt.Add(-dueSlack)) {
		r.V.DueAt = due
	}
	t.putJob(r)
}

// PutJobAt writes a job that the sweep must check again at the given time.
func (t *Tx) PutJobAt(r Stored[Job], at time.Time) {
	r.V.DueAt = at
	t.putJob(r)
}

func (t *Tx) putJob(r Stored[Job]) {
	id := string(r.V.ID)
	t.subjects = append(t.subjects, id)
	put(t, jobKey(r.V.ID), r, list(jobsList(r.V.Org), id), due(dueKey(r.V.DueAt, id)))
}

// Schedules of actions.

// ActionSchedule returns the schedule of an install's action.
func (s *Store) ActionSchedule(ctx context.Context, id fairlead.InstallID, action string) (Stored[ActionSchedule], error) {
	return get[ActionSchedule](ctx, s, actionScheduleKey(id, action), missing(fairlead.CodeActionNotFound, action))
}

// ActionSchedules lists the schedules of an install by action.
func (s *Store) ActionSchedules(ctx context.Context, id fairlead.InstallID) ([]Stored[ActionSchedule], error) {
	return all[ActionSchedule](ctx, s, engine.Query{Partition: installPartition(id), Prefix: schedulePrefix})
}

// DueSchedules returns up to limit schedules whose next run must start now, the most overdue first.
func (s *Store) DueSchedules(ctx context.Context, now time.Time, limit int) ([]Stored[ActionSchedule], error) {
	p, err := query[ActionSchedule](ctx, s, engine.Query{Index: engine.Due, Partition: scheduleDuePartition, Limit: limit})
	if err != nil {
		return nil, err
	}
	due := p.Items
	for len(due) > 0 && due[len(due)-1].V.Next.After(now) {
		due = due[:len(due)-1]
	}
	return due, nil
}

// PutActionSchedule writes a schedule, with its place in the Due index.
func (t *Tx) PutActionSchedule(r Stored[ActionSchedule]) {
	put(t, actionScheduleKey(r.V.Install, r.V.Action), r, due(scheduleDueKey(r.V.Next, r.V.Install, r.V.Action)))
}

// DeleteActionSchedule removes a schedule.
func (t *Tx) DeleteActionSchedule(r Stored[ActionSchedule]) {
	remove(t, actionScheduleKey(r.V.Install, r.V.Action), r)
}

// Runners, their agents and sessions.

// Runner returns a runner by name.
func (s *Store) Runner(ctx context.Context, org fairlead.OrgID, name string) (Stored[Runner], error) {
	return get[Runner](ctx, s, runnerKey(org, name), missing(fairlead.CodeRunnerNotFound, name))
}

// RunnerName returns the name of the runner with this identifier.
func (s *Store) RunnerName(ctx context.Context, id fairlead.RunnerID) (Stored[RunnerName], error) {
	return get[RunnerName](ctx, s, runnerByIDKey(id), missing(fairlead.CodeRunnerNotFound, string(id)))
}

// Runners lists runners by name.
func (s *Store) Runners(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[Runner], error) {
	return query[Runner](ctx, s, engine.Query{Partition: runnersPartition(org), After: q.After, Limit: q.Limit})
}

// PutRunner writes a runner and its RunnerName, which repeats the fields that every
// claim and heartbeat needs. If RunnerName were not written, agents would keep
// their old configuration forever. The runner is one of the commit's Subjects.
func (t *Tx) PutRunner(r Stored[Runner]) {
	t.subjects = append(t.subjects, string(r.V.ID))
	put(t, runnerKey(r.V.Org, r.V.Name), r)
	precondition := int64(anyVersion) // the precondition of the runner protects both records
	if r.Version == 0 {
		precondition = 0
	}
	put(t, runnerByIDKey(r.V.ID), Stored[RunnerName]{V: r.V.byID(), Version: precondition})
}

// byID returns the runner's RunnerName.
func (r Runner) byID() RunnerName {
	return RunnerName{Org: r.Org, Name: r.Name, Mode: r.Mode, Limit: r.Limit, Version: r.Version, Channel: r.Channel, Revision: r.Revision, Seeded: r.Seeded, KeysWanted: r.KeysWanted}
}

// DeleteRunner removes a runner. Its agents and sessions stay, but refer to no runner.
func (t *Tx) DeleteRunner(r Stored[Runner]) {
	t.subjects = append(t.subjects, string(r.V.ID))
	remove(t, runnerKey(r.V.Org, r.V.Name), r)
	t.drop(runnerByIDKey(r.V.ID))
	t.drop(runnerSlotsKey(r.V.ID))
	t.drop(watchKey(r.V.ID))
}

// RunnerSlots returns the started, unfinished jobs of a runner with a limit. If the
// runner has not started a job yet, the version is 0.
func (s *Store) RunnerSlots(ctx context.Context, id fairlead.RunnerID) (Stored[RunnerSlots], error) {
	return getOr(ctx, s, runnerSlotsKey(id), RunnerSlots{Runner: id})
}

// PutRunnerSlots writes a runner's slots. The runner is one of the commit's Subjects.
func (t *Tx) PutRunnerSlots(r Stored[RunnerSlots]) {
	t.subjects = append(t.subjects, string(r.V.Runner))
	put(t, runnerSlotsKey(r.V.Runner), r)
}

// CheckRunner makes the commit fail if the runner has changed since it was read.
func (t *Tx) CheckRunner(r Stored[Runner]) { t.check(runnerKey(r.V.Org, r.V.Name), r.Version) }

// Agent returns an enrolled agent by the id of its key.
func (s *Store) Agent(ctx context.Context, id fairlead.RunnerID, keyID string) (Stored[Agent], error) {
	return get[Agent](ctx, s, agentKey(id, keyID), missing(fairlead.CodeAgentNotFound, keyID))
}

// Agents lists a runner's enrolled agents by the ids of their keys.
func (s *Store) Agents(ctx context.Context, runner fairlead.RunnerID) ([]Stored[Agent], error) {
	return all[Agent](ctx, s, engine.Query{Partition: runnerPartition(runner), Prefix: agentPrefix})
}

// PutAgent writes an agent.
func (t *Tx) PutAgent(keyID string, r Stored[Agent]) {
	put(t, agentKey(r.V.Runner, keyID), r)
}

// OpenSessions returns the sessions of a runner that an identity has open. The parameter
// of is the hash of the identity.
func (s *Store) OpenSessions(ctx context.Context, runner fairlead.RunnerID, of string) (Stored[OpenSessions], error) {
	return getOr(ctx, s, openSessionsKey(runner, of), OpenSessions{Runner: runner})
}

// PutOpenSessions writes the open sessions of an identity. The record expires with
// the newest session. Open must not be empty.
func (t *Tx) PutOpenSessions(of string, r Stored[OpenSessions]) {
	put(t, openSessionsKey(r.V.Runner, of), r, expires(r.V.Open[len(r.V.Open)-1].Expires))
}

// Session returns a session.
func (s *Store) Session(ctx context.Context, runner fairlead.RunnerID, id fairlead.SessionID) (Stored[Session], error) {
	return get[Session](ctx, s, sessionKey(runner, id), missing(fairlead.CodeSessionNotFound, string(id)))
}

// Sessions lists at most limit sessions of a runner, newest first. It includes
// sessions that ended within the last day.
func (s *Store) Sessions(ctx context.Context, runner fairlead.RunnerID, limit int) ([]Stored[Session], error) {
	p, err := query[Session](ctx, s, engine.Query{Partition: runnerPartition(runner), Prefix: sessionPrefix, Limit: limit, Backward: true})
	return p.Items, err
}

// Forgotten returns the time at which the session's record expires: a day after
// the session. An engine may drop the record later.
func (s Session) Forgotten() time.Time { return s.Expires.Add(24 * time.Hour) }

// PutSession writes a session. Its record expires at Forgotten.
func (t *Tx) PutSession(r Stored[Session]) {
	put(t, sessionKey(r.V.Runner, r.V.ID), r, expires(r.V.Forgotten()))
}

// Enrolment returns an enrolment by the hash of its token.
func (s *Store) Enrolment(ctx context.Context, hash string) (Stored[Enrolment], error) {
	return get[Enrolment](ctx, s, enrolmentKey(hash), missing(fairlead.CodeEnrolmentNotFound, "token"))
}

// PutEnrolment writes an enrolment. The record expires an hour after the token.
func (t *Tx) PutEnrolment(hash string, r Stored[Enrolment]) {
	put(t, enrolmentKey(hash), r, expires(r.V.Expires.Add(time.Hour)))
}

// Idempotency and Terraform state.

// Idempotency returns the result of the creating request whose key has this hash.
func (s *Store) Idempotency(ctx context.Context, hash string) (Stored[Idempotency], error) {
	return get[Idempotency](ctx, s, idempotencyKey(hash), missing(fairlead.CodeIdempotencyKeyNotFound, "given"))
}

// PutIdempotency writes the result of a creating request. The record expires after a day.
func (t *Tx) PutIdempotency(hash string, r Idempotency, now time.Time) {
	put(t, idempotencyKey(hash), Stored[Idempotency]{V: r}, expires(now.Add(24*time.Hour)))
}

// State returns the head of a component's Terraform state, with version 0 if the
// state was never written.
func (s *Store) State(ctx context.Context, id fairlead.InstallID, component string) (Stored[StateHead], error) {
	return getOr(ctx, s, stateKey(id, component), StateHead{Install: id, Component: component})
}

// States lists the heads of an install's states.
func (s *Store) States(ctx context.Context, id fairlead.InstallID) ([]Stored[StateHead], error) {
	return all[StateHead](ctx, s, engine.Query{Partition: installPartition(id), Prefix: statePrefix})
}

// PutState writes the head of a state.
func (t *Tx) PutState(r Stored[StateHead]) {
	put(t, stateKey(r.V.Install, r.V.Component), r)
}

// DeleteState removes the head of a state.
func (t *Tx) DeleteState(r Stored[StateHead]) {
	remove(t, stateKey(r.V.Install, r.V.Component), r)
}
