package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/job"
)

// maxLogAppend is the largest append to a job's log, in bytes.
const maxLogAppend = 1 << 20

// runnerRoutes registers the runner API without the routes of Terraform's state.
func (s *server) runnerRoutes() {
	s.identityRoutes(s.Control)
	s.sessionRoutes(s.Control)
	s.warmRoutes(s.Control)
	s.warmMarkerRoute(s.Control)
	s.stepRoutes(s.Control)
	s.planRoutes(s.Control)
	s.partRoutes(s.Control)
}

func (s *server) identityRoutes(c *control.Control) {
	type enrol struct{ Body wire.EnrolRequest }
	register(s, op{Route: wire.EnrolRunner, auth: unauthenticated, may: open(), tag: "Identity", summary: "Trade a single-use token for an identity",
		problems: codes{fairlead.CodeEnrolmentRefused, fairlead.CodeInvalidKey}},
		func(ctx context.Context, in *enrol) (*body[wire.Enrolled], error) {
			leave, err := s.look(ctx, in.Body.Token)
			if err != nil {
				return nil, err
			}
			defer leave()
			signing, err := c.Signing(ctx)
			if err != nil {
				return nil, err
			}
			r, err := c.Enrol(ctx, in.Body.Token, in.Body.PublicKey)
			return answer(wire.Enrolled{Runner: r.Name, RunnerID: string(r.ID), Keys: verificationKeys(signing.Set.Keys), Registry: s.Registry}, err)
		})
	register(s, op{Route: wire.CreateChallenge, auth: unauthenticated, may: open(), tag: "Identity", summary: "Get a nonce to sign"},
		func(context.Context, *struct{}) (*body[wire.Challenge], error) {
			return answer(wire.Challenge{Nonce: c.NewChallenge(), Report: true}, nil)
		})
	type create struct {
		requestHost
		Protocol string `header:"Fairlead-Protocol" maxLength:"20" doc:"Version of the protocol that the agent speaks"`
		Body     wire.SessionRequest
	}
	register(s, op{Route: wire.CreateSession, auth: unauthenticated, may: open(), tag: "Identity", summary: "Prove an identity and open or renew a session", status: http.StatusCreated,
		problems: codes{fairlead.CodeAWSIdentityUnavailable, fairlead.CodeOIDCIssuerUnavailable, fairlead.CodeSessionRefused, fairlead.CodeStackRefused}},
		func(ctx context.Context, in *create) (*body[wire.Session], error) {
			b, audience := in.Body, s.audience(in.requestHost)
			p := control.SessionProof{Runner: fairlead.RunnerID(b.RunnerID), Nonce: b.Nonce,
				PublicKey: b.PublicKey, Statement: wire.SessionStatement(b.Nonce, b.RunnerID, b.Instance), Signature: b.Signature,
				Instance: b.Instance, Version: b.Version, Protocol: in.Protocol, Capacity: b.Capacity, Stack: readStack(b.Stack)}
			p.AWS = readAWSProof(b.AWSIAM, audience)
			if o := b.OIDC; o != nil {
				statement := wire.OIDCStatement(b.Nonce, b.RunnerID, audience, b.PublicKey, b.Instance)
				p.OIDC, p.Statement = &control.OIDCProof{Token: o.Token}, wire.OIDCSigned(statement, o.Token)
				if audience != "" {
					p.OIDC.Binding = wire.OIDCBinding(statement)
				}
			}
			var report control.Heartbeat
			if b.Report != nil {
				report = readHeartbeat(*b.Report)
				p.Report = &report
			}
			access := c.AccessAhead(ctx, p)
			v, err := c.OpenSession(ctx, p)
			if err != nil {
				return nil, err
			}
			out := wire.Session{ID: string(v.ID), Token: v.Bearer, RenewalNonce: v.Renewal, ExpiresAt: v.Expires.UTC(), Registry: s.Registry,
				Queue: renderQueueAccess(access(ctx, v.Session)), Configuration: renderAgentConfiguration(v.Settings.Configuration)}
			if b.Report != nil {
				status := s.status(ctx, v.Session, report, v.Settings)
				status.Configuration = nil // the agent gets it with its session
				out.Status = &status
			}
			return answer(out, nil)
		})
}

func (s *server) sessionRoutes(c *control.Control) {
	type heartbeat struct{ Body wire.SessionHeartbeat }
	register(s, op{Route: wire.HeartbeatSession, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Report the condition of the agent",
		problems: slices.Concat(storesMuch, codes{fairlead.CodeSessionNotFound, fairlead.CodeInvalidHeartbeat})},
		func(ctx context.Context, in *heartbeat) (*body[wire.SessionStatus], error) {
			return s.heartbeat(ctx, in.Body)
		})
	type keys struct{ Body wire.KeysReport }
	register(s, op{Route: wire.ReportKeys, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Report the public keys of installs", status: http.StatusNoContent,
		doc:      "Each secret of an install is encrypted with its key. A key that differs from the recorded one is shown, and not used before a person accepts it.",
		problems: codes{fairlead.CodeInvalidInstallKey}},
		func(ctx context.Context, in *keys) (*struct{}, error) {
			given := make(map[fairlead.InstallID]string, len(in.Body.Keys))
			for id, key := range in.Body.Keys {
				given[fairlead.InstallID(id)] = key
			}
			return nil, c.ReportKeys(ctx, callerOf(ctx).session, given)
		})
	type claim struct{ Body wire.ClaimRequest }
	register(s, op{Route: wire.ClaimJob, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Claim a job, or wait for one; 204 when there is none",
		none:     "No job was queued while the claim waited",
		problems: codes{fairlead.CodeRunnerNotTaking}},
		func(ctx context.Context, in *claim) (*claimed, error) {
			var k control.Claim
			var options []control.ClaimOption
			if in.Body.WarmSteps {
				options = append(options, control.IntoWarmStep)
			}
			var err error
			if in.Body.Job != "" {
				k, err = c.ClaimJob(ctx, callerOf(ctx).session, fairlead.JobID(in.Body.Job), options...)
			} else {
				k, err = c.Claim(ctx, callerOf(ctx).session, time.Duration(in.Body.WaitSeconds)*time.Second, options...)
			}
			return answerClaim(k, err)
		})
	type release struct {
		JobPath
		Body wire.ReleaseRequest
	}
	register(s, op{Route: wire.ReleaseJob, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Release a job whose step was not started", status: http.StatusNoContent,
		problems: codes{fairlead.CodeJobNotFound, fairlead.CodeStaleEpoch, fairlead.CodeJobState}},
		func(ctx context.Context, in *release) (*struct{}, error) {
			return nil, c.ReleaseJob(ctx, callerOf(ctx).session, fairlead.JobID(in.Job), in.Body.Epoch)
		})
	type rescue struct {
		JobPath
		Epoch   int64  `query:"epoch" minimum:"1" required:"true"`
		Offset  int64  `query:"offset" minimum:"0" required:"true"`
		RawBody []byte `contentType:"application/octet-stream"`
	}
	register(s, op{Route: wire.RescueJobLog, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Append the part of a log that a dead step did not send", body: maxLogAppend, read: 30 * time.Second,
		doc:      "The agent calls it before it reports the death. The step keeps its log in a file.",
		problems: slices.Concat(ofAStep, codes{fairlead.CodeLogOffset, fairlead.CodeLogFenced, fairlead.CodeLogCut, fairlead.CodeLogDiverged, fairlead.CodeLogFull, fairlead.CodeLogNotFound})},
		func(ctx context.Context, in *rescue) (*body[wire.LogAppended], error) {
			next, err := c.RescueLog(ctx, callerOf(ctx).session, fairlead.JobID(in.Job), in.Epoch, in.Offset, in.RawBody)
			return answer(wire.LogAppended{Next: next}, err)
		})
	type died struct {
		JobPath
		Body wire.DiedRequest
	}
	register(s, op{Route: wire.ReportDied, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Report a step that is gone", status: http.StatusNoContent,
		problems: codes{fairlead.CodeJobNotFound, fairlead.CodeStaleEpoch, fairlead.CodeJobState, fairlead.CodeInvalidReason}},
		func(ctx context.Context, in *died) (*struct{}, error) {
			d := control.Death{Epoch: in.Body.Epoch, ExitCode: in.Body.ExitCode, Signal: in.Body.Signal, Cause: fairlead.Cause(in.Body.Reason), Message: in.Body.Message,
				Salvaged: (*job.Salvaged)(in.Body.Salvaged), DiskFull: in.Body.DiskFull}
			if l := in.Body.Log; l != nil {
				d.Log = &control.WholeLog{Size: l.Size, CRC32: l.CRC32}
			}
			return nil, c.ReportDeath(ctx, callerOf(ctx).session, fairlead.JobID(in.Job), d)
		})
}

// claimed is an answer with a claim, or 204 without one.
type claimed struct {
	Status int
	Body   *wire.Claim
}

// readAWSProof returns nil for a request without a proof.
func readAWSProof(p *wire.AWSIAMProof, audience string) *control.AWSProof {
	if p == nil {
		return nil
	}
	return &control.AWSProof{Audience: audience, Proof: awsiam.Proof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}}
}

func answerClaim(k control.Claim, err error) (*claimed, error) {
	if errors.Is(err, control.ErrNoWork) {
		return &claimed{Status: http.StatusNoContent}, nil
	}
	if err != nil {
		return nil, err
	}
	return &claimed{Status: http.StatusOK, Body: claimOf(k)}, nil
}

func claimOf(k control.Claim) *wire.Claim {
	return &wire.Claim{Job: string(k.ID), Epoch: k.Lease.Epoch,
		Operation: string(k.Operation), Plugin: k.Plugin, Install: k.InstallName, InstallID: string(k.Install), Component: k.Component, Role: k.Role, PlanJob: string(k.PlanJob), Configuration: k.Configuration,
		LaunchToken: k.LaunchToken, Bindable: k.Bindable, APIOnly: k.APIOnly, WarmStep: string(k.WarmStep), StartBefore: k.Lease.Expires.UTC(), GraceSeconds: int(k.Terms.OrDefault().Grace / time.Second), Size: sizeOf(k.Size), Image: k.Image}
}

// sizeOf returns nil for a job that asks for no size.
func sizeOf(s job.Size) *wire.JobSize {
	if s == (job.Size{}) {
		return nil
	}
	return &wire.JobSize{CPU: s.CPU, Memory: s.Memory}
}

func warmIDs(names []string) []fairlead.WarmStepID {
	ids := make([]fairlead.WarmStepID, len(names))
	for i, name := range names {
		ids[i] = fairlead.WarmStepID(name)
	}
	return ids
}

func (s *server) warmRoutes(c *control.Control) {
	type ahead struct{ Body wire.AheadRequest }
	register(s, op{Route: wire.StartAhead, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Get the steps to start before their jobs are known", status: http.StatusCreated,
		problems: ofAStep},
		func(ctx context.Context, in *ahead) (*body[wire.StartedAhead], error) {
			b := in.Body
			steps, err := c.StartAhead(ctx, callerOf(ctx).session, control.AheadRequest{Job: fairlead.JobID(b.Job), Epoch: b.Epoch, First: b.First, Most: b.Most, Have: warmIDs(b.Have)})
			out := wire.StartedAhead{WarmSteps: []wire.WarmStep{}}
			for _, w := range steps {
				out.WarmSteps = append(out.WarmSteps, wire.WarmStep{ID: string(w.ID), Token: w.Token, Bindable: w.Bindable, Role: string(w.Role), InstallID: string(w.Install),
					Deployment: string(w.Deployment), ExpiresAt: w.Expires.UTC(), Size: sizeOf(w.Size)})
			}
			return answer(out, err)
		})
	register(s, op{Route: wire.EndWarmStep, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "End a warm step; 204 if it has no job, else the claim of its job",
		doc:  "If a job was assigned to the warm step, the step continues: the answer to the claim may have been lost.",
		none: "The warm step has no job, and gets none", problems: codes{fairlead.CodeWarmStepNotFound}},
		func(ctx context.Context, in *WarmPath) (*claimed, error) {
			return answerClaim(c.EndWarmStep(ctx, callerOf(ctx).session, fairlead.WarmStepID(in.Warm)))
		})
	type adopt struct{ Body wire.AdoptRequest }
	register(s, op{Route: wire.AdoptSteps, auth: sessionToken, may: byCredential(), tag: "Agents", summary: "Get the claims of steps whose agent is gone",
		doc: "An agent without the folders of the one before finds the steps where they run. A step whose agent is online, or whose lease is over, is not in the answer."},
		func(ctx context.Context, in *adopt) (*body[wire.AdoptedSteps], error) {
			var attempts []control.Attempt
			for _, at := range in.Body.Attempts {
				attempts = append(attempts, control.Attempt{Job: fairlead.JobID(at.Job), Epoch: at.Epoch})
			}
			found, err := c.AdoptSteps(ctx, callerOf(ctx).session, attempts, warmIDs(in.Body.WarmSteps))
			out := wire.AdoptedSteps{Claims: []wire.Claim{}, Ended: []string{}}
			for _, k := range found.Claims {
				out.Claims = append(out.Claims, *claimOf(k))
			}
			for _, id := range found.Ended {
				out.Ended = append(out.Ended, string(id))
			}
			return answer(out, err)
		})
	type await struct {
		WarmPath
		requestHost
		Body wire.AwaitRequest
	}
	register(s, op{Route: wire.AwaitJob, auth: warmToken, may: byCredential(), tag: "Steps", summary: "Wait for the job of a warm step; 204 when it has none yet",
		none:     "No job was assigned while the request waited",
		problems: codes{fairlead.CodeWarmStepOver, fairlead.CodeWarmTokenUsed, fairlead.CodeOtherJob, fairlead.CodeStepRoleUnproven, fairlead.CodeAWSIdentityUnavailable}},
		func(ctx context.Context, in *await) (*claimed, error) {
			h := callerOf(ctx).warm
			if string(h.ID) != in.Warm {
				return nil, otherWarmStep()
			}
			proof := readAWSProof(in.Body.AWSIAM, s.audience(in.requestHost))
			if proof != nil {
				if err := c.ProveRole(ctx, h.Binding, wire.AwaitStatement(in.Warm, in.Body.StepID), proof); err != nil {
					return nil, err
				}
			}
			return answerClaim(c.AwaitJob(ctx, h, in.Body.StepID, proof != nil, time.Duration(in.Body.WaitSeconds)*time.Second))
		})
}

// warmMarkerRoute registers the route by which a warm step finds its marker.
func (s *server) warmMarkerRoute(c *control.Control) {
	register(s, op{Route: wire.GetWarmMarker, auth: warmToken, may: byCredential(), tag: "Steps", summary: "Get the place of the marker that exists when a job may be assigned to a warm step", status: http.StatusCreated,
		doc:      "A step that looks for its marker asks for its job rarely.",
		problems: codes{fairlead.CodeWarmStepOver, fairlead.CodeNoMarker, fairlead.CodeOtherJob}},
		func(ctx context.Context, in *WarmPath) (*body[wire.WarmMarker], error) {
			h := callerOf(ctx).warm
			if string(h.ID) != in.Warm {
				return nil, otherWarmStep()
			}
			a, err := c.WarmMarker(ctx, h)
			if err != nil {
				return nil, err
			}
			return answer(wire.WarmMarker{CloudAccess: renderCloudAccess(a), Marker: *renderCancelMarker(a)}, nil)
		})
}

func otherWarmStep() error {
	return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherJob, Message: "the token is for another warm step"}
}

// heartbeat records the report of an agent, and answers with what the agent needs to
// know. If it cannot read a part of the answer, it omits this part: an agent can work
// without it.
func (s *server) heartbeat(ctx context.Context, in wire.SessionHeartbeat) (*body[wire.SessionStatus], error) {
	h := readHeartbeat(in)
	settings, err := s.Control.AgentSettings(ctx, callerOf(ctx).session.Runner, in.Configuration)
	if err != nil {
		s.Logger.Warn("a heartbeat's answer lacks the runner's settings for its agent", "error", err) // the agent can work without them, and asks again
	}
	h.Configured = err == nil && settings.Configuration == nil
	if err := s.Control.HeartbeatSession(ctx, callerOf(ctx).session, h); err != nil {
		return nil, err
	}
	return answer(s.status(ctx, callerOf(ctx).session, h, settings), nil)
}

func readHeartbeat(in wire.SessionHeartbeat) control.Heartbeat {
	return control.Heartbeat{Capacity: in.Capacity, WarmSteps: in.WarmSteps,
		Running: in.Running, Draining: in.Draining, Ending: in.Ending, Customer: readCustomer(in.Customer), Unhealthy: in.Unhealthy, Isolation: in.Isolation, Seed: in.InstallKeys, Seeds: in.Seeds, Configuration: in.Configuration}
}

// status returns what the agent of the session needs to know after its heartbeat.
func (s *server) status(ctx context.Context, session control.Session, h control.Heartbeat, settings control.AgentSettings) wire.SessionStatus {
	c := s.Control
	out := wire.SessionStatus{HeartbeatSeconds: int(c.HeartbeatEvery() / time.Second)}
	if idle := c.IdleHeartbeatEvery(); idle != c.HeartbeatEvery() {
		out.IdleHeartbeatSeconds = int(idle / time.Second)
	}
	out.Wanted = renderWanted(settings.Wanted)
	if situations, err := c.AgentSituations(ctx, session, h); err != nil {
		s.Logger.Warn("a heartbeat's answer lacks the notices for the agent's operator", "error", err)
	} else {
		out.Situations = renderSituations(situations)
	}
	out.KeysWanted = s.keysWanted(ctx, session, h, settings)
	if !h.Ending {
		out.Configuration = renderAgentConfiguration(settings.Configuration)
	}
	return out
}

// keysWanted returns the installs whose keys an agent with a seed reports.
func (s *server) keysWanted(ctx context.Context, session control.Session, h control.Heartbeat, settings control.AgentSettings) (ids []string) {
	if !h.Seed {
		return nil
	}
	wanted := settings.KeysWanted
	if !settings.Seeded || len(h.Seeds) > 0 {
		var err error
		if wanted, err = s.Control.NoteSeed(ctx, session.Runner, h.Seeds); err != nil {
			s.Logger.Warn("a heartbeat's answer does not ask for the keys of installs", "error", err) // the next one does
		}
	}
	for _, id := range wanted {
		ids = append(ids, string(id))
	}
	return ids
}

func renderAgentConfiguration(in *control.AgentConfiguration) *wire.AgentConfiguration {
	if in == nil {
		return nil
	}
	return &wire.AgentConfiguration{Revision: in.Revision, Runner: in.Runner}
}

func milliseconds(d time.Duration) int { return int(d / time.Millisecond) }

// renewLease renews the holder's lease. It looks for a reader of the log after the renewal's wait.
func renewLease(ctx context.Context, c *control.Control, h control.Holder, in wire.JobHeartbeat) (wire.Lease, error) {
	j, err := c.RenewLease(ctx, h, time.Duration(in.NoOutputSeconds)*time.Second, time.Duration(in.WaitSeconds)*time.Second)
	if err != nil {
		return wire.Lease{}, err
	}
	log := c.LogTerms(ctx, h)
	return wire.Lease{Cancel: j.State == job.Canceling, CancelReason: string(j.Stop), ExpiresAt: j.Lease.Expires.UTC(),
		RenewSeconds: int(j.Terms.RenewEvery() / time.Second), LogEveryMS: milliseconds(log.Every), LogBulkMS: milliseconds(log.Bulk), LogCut: log.Cut}, nil
}

func rawEach(list [][]byte) []json.RawMessage {
	var out []json.RawMessage
	for _, b := range list {
		out = append(out, b)
	}
	return out
}

// startRoute registers the route that starts a job.
func (s *server) startRoute(c *control.Control) {
	type start struct {
		JobPath
		requestHost
		Fields string `header:"Fairlead-Spec-Fields" maxLength:"200" doc:"The optional fields of a job spec that the step supports, separated by commas; a step refuses a spec with a field that it does not know"`
		Body   wire.StartRequest
	}
	register(s, op{Route: wire.StartJob, auth: launchToken, may: byCredential(), tag: "Steps", summary: "Trade the launch token for the job's spec",
		problems: slices.Concat(ofAStep, ofAVersion, codes{fairlead.CodeLaunchTokenUsed, fairlead.CodeStepRoleUnproven, fairlead.CodeAWSIdentityUnavailable, fairlead.CodeJobState, fairlead.CodeJobAltered, fairlead.CodeStateStorageChanged, fairlead.CodeRegistryMissing})},
		func(ctx context.Context, in *start) (*body[wire.Started], error) {
			h := callerOf(ctx).holder
			if err := c.ProveRole(ctx, callerOf(ctx).launch.Binding, wire.StartStatement(string(h.Job), in.Body.StepID), readAWSProof(in.Body.AWSIAM, s.audience(in.requestHost))); err != nil {
				return nil, err
			}
			st, err := c.StartJob(ctx, h.Job, h.Epoch, in.Body.StepID, strings.Split(in.Fields, ",")...)
			out := wire.Started{Envelope: st.Envelope, KeySets: rawEach(st.KeySets), LeaseToken: st.LeaseToken, StateToken: st.StateToken, RenewSeconds: int(st.RenewEvery / time.Second), MaxBody: int64(s.MaxBody), LogTailBytes: wire.MaxLogTail}
			if err == nil {
				log := c.LogTerms(ctx, h)
				out.LogEveryMS, out.LogBulkMS = milliseconds(log.Every), milliseconds(log.Bulk)
				// An error must not keep the job from starting: without direct
				// access, the step writes its log through the API.
				access, aerr := c.AttemptAccess(ctx, h)
				switch {
				case aerr == nil:
					out.Log, out.Cancel = renderLogAccess(access), renderCancelMarker(access)
				case fairlead.CodeOf(aerr) != fairlead.CodeNoLogAccess:
					s.Logger.Warn("a job's log goes through the API", "job", h.Job, "error", aerr)
				}
			}
			return answer(out, err)
		})
}

func (s *server) signingRoute(c *control.Control) {
	type provenance struct {
		JobPath
		Body wire.Built
	}
	register(s, op{Route: wire.SignProvenance, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Sign the statement about what a build job has made, before the job ends", status: http.StatusCreated,
		problems: slices.Concat(ofAStep, codes{fairlead.CodeArtifactMissing, fairlead.CodeProvenanceRefused})},
		func(ctx context.Context, in *provenance) (*body[wire.SignedProvenance], error) {
			envelope, err := c.SignProvenance(ctx, callerOf(ctx).holder, control.Built(in.Body))
			return answer(wire.SignedProvenance{Envelope: envelope}, err)
		})
}

func (s *server) stepRoutes(c *control.Control) {
	s.startRoute(c)
	register(s, op{Route: wire.RenewLogAccess, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Get new credentials for the attempt's log", status: http.StatusCreated,
		problems: slices.Concat(ofAStep, codes{fairlead.CodeNoLogAccess, fairlead.CodeLogAccessUnavailable})},
		func(ctx context.Context, _ *JobPath) (*body[wire.LogAccess], error) {
			access, err := c.AttemptAccess(ctx, callerOf(ctx).holder)
			if err != nil {
				return nil, err
			}
			return answer(*renderLogAccess(access), nil)
		})
	register(s, op{Route: wire.GetPullLogin, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Get a login to the registry of the job's artifacts", status: http.StatusCreated,
		problems: slices.Concat(ofAStep, ofAVersion, codes{fairlead.CodeNoPullLogin, fairlead.CodeRegistryUnavailable})},
		func(ctx context.Context, _ *JobPath) (*body[wire.RegistryLogin], error) {
			l, ok, err := c.PullLogin(ctx, callerOf(ctx).holder)
			if err == nil && !ok {
				err = &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeNoPullLogin, Message: "the artifacts are in the control plane's own registry", Hint: "Use the lease token as the login."}
			}
			if err != nil {
				return nil, err
			}
			return answer(*renderLogin(l), nil)
		})
	register(s, op{Route: wire.GetImageBuild, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Get access to the service that builds the image of a build job", status: http.StatusCreated,
		problems: slices.Concat(ofAStep, codes{fairlead.CodeNoImageBuilds, fairlead.CodeImageBuildsUnavailable})},
		func(ctx context.Context, _ *JobPath) (*body[wire.ImageBuildAccess], error) {
			a, err := c.ImageBuildAccess(ctx, callerOf(ctx).holder)
			if err != nil {
				return nil, err
			}
			return answer(wire.ImageBuildAccess{CloudAccess: renderCloudAccess(a), Project: a.Image.Project, Bucket: a.Image.Bucket, Prefix: a.Image.Prefix,
				LogGroup: a.Image.LogGroup, LogStream: a.Image.LogStream}, nil)
		})
	s.signingRoute(c)
	type values struct {
		JobPath
		Name string `path:"name" pattern:"^(inputs|params|last|environment|move|components\\.[a-z0-9-]+)$" maxLength:"100" doc:"Name of the values in the job's spec"`
	}
	register(s, op{Route: wire.GetValues, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Get sensitive values that the job's spec names",
		doc:      "The answer is a JSON object. The spec has its HMAC-SHA256 under the lease token.",
		problems: slices.Concat(ofAStep, ofAVersion, codes{fairlead.CodeValuesNotFound})},
		func(ctx context.Context, in *values) (*part, error) {
			data, err := c.JobValues(ctx, callerOf(ctx).holder, in.Name)
			return &part{ContentType: "application/octet-stream", Body: data}, err
		})
	type heartbeat struct {
		JobPath
		Body wire.JobHeartbeat
	}
	register(s, op{Route: wire.HeartbeatJob, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Renew the lease, and learn of a cancelation",
		problems: slices.Concat(ofAStep, codes{fairlead.CodeJobState})},
		func(ctx context.Context, in *heartbeat) (*body[wire.Lease], error) {
			return answer(renewLease(ctx, c, callerOf(ctx).holder, in.Body))
		})
	type appendLog struct {
		JobPath
		Offset  int64  `query:"offset" minimum:"0" required:"true"`
		RawBody []byte `contentType:"application/octet-stream"`
	}
	register(s, op{Route: wire.AppendJobLog, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Append to the attempt's log at an offset", body: maxLogAppend, read: 30 * time.Second,
		problems: slices.Concat(ofAStep, codes{fairlead.CodeLogOffset, fairlead.CodeLogFenced, fairlead.CodeLogCut, fairlead.CodeLogDiverged, fairlead.CodeLogFull, fairlead.CodeLogNotFound})},
		func(ctx context.Context, in *appendLog) (*body[wire.LogAppended], error) {
			next, err := c.AppendLog(ctx, callerOf(ctx).holder, in.Offset, in.RawBody)
			return answer(wire.LogAppended{Next: next}, err)
		})
	type finish struct {
		JobPath
		Body wire.FinishRequest
	}
	register(s, op{Route: wire.FinishJob, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Report how the job ended", status: http.StatusNoContent, body: job.MaxOutputs*4/3 + 2<<20, read: 2 * time.Minute,
		problems: slices.Concat(ofAStep, storesMuch, codes{fairlead.CodeJobState, fairlead.CodeLogOffset, fairlead.CodeLogFenced, fairlead.CodeLogNotFound, fairlead.CodePlanMissing, fairlead.CodeOutputsTooLarge, fairlead.CodeInvalidEncryptedValue, fairlead.CodeInvalidInstallKey, fairlead.CodeBodyNotStaged, fairlead.CodeArtifactMissing, fairlead.CodeProvenanceRefused})},
		func(ctx context.Context, in *finish) (*struct{}, error) {
			return nil, c.FinishJob(ctx, callerOf(ctx).holder, readReport(in.Body))
		})
}

func readCustomer(in *wire.CustomerMode) *fairlead.CustomerMode {
	if in == nil {
		return nil
	}
	out := &fairlead.CustomerMode{Mode: fairlead.RunnerMode(in.Mode), Reason: in.Reason}
	if in.Since != nil {
		out.Since = *in.Since
	}
	return out
}

func readReport(in wire.FinishRequest) control.Report {
	rep := control.Report{Outcome: in.Outcome, Reason: fairlead.Reason(in.Reason), Message: in.Message, ExitCode: in.ExitCode, Mutated: in.Mutated,
		Salvaged: (*job.Salvaged)(in.Salvaged), DiskFull: in.DiskFull, LogSize: in.Log.Size, LogCRC32: in.Log.CRC32, Truncated: in.Log.Truncated}
	if in.LogTail != nil {
		rep.LogTail = control.LogTail{Offset: in.LogTail.Offset, Data: in.LogTail.Data}
	}
	if in.Plan != nil {
		rep.Plan = &control.Plan{Digest: in.Plan.Digest, NoOp: in.Plan.NoOp, Changes: deployment.Changes(in.Plan.Changes), NeedsSignature: in.Plan.NeedsSignature, Artifact: in.Plan.Artifact}
		rep.ChangeSet = in.Plan.Summary
		if in.Plan.ChangeSet != nil {
			rep.ChangeSet, _ = json.Marshal(in.Plan.ChangeSet) // it has just been decoded from JSON
		}
	}
	rep.Built, rep.Key = (*control.Built)(in.Built), in.Key
	rep.Outputs = make(map[string]control.Output, len(in.Outputs))
	for name, o := range in.Outputs {
		rep.Outputs[name] = control.Output{Value: o.Value, Sensitive: o.Sensitive, Encrypted: readEncrypted(o.Encrypted)}
	}
	rep.Moved = make(map[string]control.MovedSecret, len(in.Moved))
	for place, m := range in.Moved {
		rep.Moved[place] = control.MovedSecret{Encrypted: *readEncrypted(&m.Encrypted), Of: m.Of}
	}
	return rep
}

func (s *server) planRoutes(c *control.Control) {
	type put struct {
		JobPath
		RawBody []byte `contentType:"application/octet-stream"`
	}
	register(s, op{Route: wire.PutPlan, auth: leaseToken, may: byCredential(), tag: "Plans", summary: "Store the attempt's saved plan", status: http.StatusNoContent, body: control.MaxState, read: 2 * time.Minute,
		problems: slices.Concat(ofAStep, codes{fairlead.CodeJobState, fairlead.CodePlanTooLarge, fairlead.CodeBodyNotStaged})},
		func(ctx context.Context, in *put) (*struct{}, error) {
			return nil, c.PutPlan(ctx, callerOf(ctx).holder, in.RawBody)
		})
	type plan struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
	register(s, op{Route: wire.GetPlan, auth: leaseToken, may: byCredential(), tag: "Plans", summary: "Get the saved plan to apply",
		problems: slices.Concat(ofAStep, codes{fairlead.CodeJobState, fairlead.CodePlanNotFound})},
		func(ctx context.Context, in *JobPath) (*plan, error) {
			data, err := c.GetPlan(ctx, callerOf(ctx).holder)
			return &plan{ContentType: "application/octet-stream", Body: data}, err
		})
}

func renderCloudAccess(a identity.Access) wire.CloudAccess {
	return wire.CloudAccess{Region: a.Region, AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken, ExpiresAt: a.Expires.UTC()}
}

func renderQueueAccess(a *identity.Access) *wire.QueueAccess {
	if a == nil {
		return nil
	}
	return &wire.QueueAccess{CloudAccess: renderCloudAccess(*a), Prefix: a.QueuePrefix, Name: a.Queue}
}

func renderLogAccess(a identity.Access) *wire.LogAccess {
	return &wire.LogAccess{CloudAccess: renderCloudAccess(a), Group: a.LogGroup}
}

func renderCancelMarker(a identity.Access) *wire.CancelMarker {
	if a.Cancel == (cancelmark.Place{}) {
		return nil
	}
	return &wire.CancelMarker{URL: a.Cancel.URL, Table: a.Cancel.Table, Key: a.Cancel.Key}
}

func renderLogin(l identity.Login) *wire.RegistryLogin {
	return &wire.RegistryLogin{Username: l.Username, Password: l.Password, ExpiresAt: l.Expires.UTC()}
}

// requestHost is the host of a request, which its client chooses.
type requestHost struct{ name string }

// Resolve implements huma.Resolver.
func (h *requestHost) Resolve(ctx huma.Context) []error {
	h.name = ctx.Host()
	return nil
}

// audience returns the audience of a proof in a request to the host: the audience of this
// control plane that has the host, or else the first. The host only selects among the control
// plane's own audiences, so a proof for another control plane stays refused.
func (s *server) audience(h requestHost) string {
	if host, err := awsiam.Audience("https://" + h.name); err == nil && slices.Contains(s.Audiences, host) {
		return host
	}
	if len(s.Audiences) == 0 {
		return ""
	}
	return s.Audiences[0]
}
