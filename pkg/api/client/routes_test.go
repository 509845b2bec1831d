package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func TestClaimReturnsAJobOrErrNoWork(t *testing.T) {
	s := serve(t, status(http.StatusNoContent), answer(wire.Claim{Job: "job_1", Epoch: 3}), text(409, "application/problem+json", `{"type":"urn:fairlead:problem:session-ended"}`))
	c := s.client(t)
	if _, err := c.Claim(t.Context(), 20*time.Second, false); !errors.Is(err, client.ErrNoWork) {
		t.Errorf("answer 204: %v, want ErrNoWork", err)
	}
	if got, err := c.Claim(t.Context(), 500*time.Millisecond, false); err != nil || got.Job != "job_1" || got.Epoch != 3 {
		t.Errorf("claim %+v, %v", got, err)
	}
	if _, err := c.Claim(t.Context(), -1, false); !client.HasCode(err, "session-ended") {
		t.Errorf("refused claim: %v", err)
	}
	for i, want := range []string{`{"wait_seconds":20}`, `{"wait_seconds":1}`, `{"wait_seconds":0}`} {
		if s.bodies[i] != want {
			t.Errorf("claim %d sends %s, want %s: half a second must not become 0", i, s.bodies[i], want)
		}
	}
}

func TestEveryCallUsesItsRoute(t *testing.T) {
	ctx := context.Background()
	one := client.ListOptions{Cursor: "c", Limit: 7}
	for want, call := range map[string]func(*client.Client) error{
		"GET /v1/meta": func(c *client.Client) error { _, err := c.Meta(ctx); return err },
		"POST /v1/apps/shop/versions": func(c *client.Client) error {
			_, err := c.PublishVersion(ctx, "shop", wire.PublishVersionRequest{Config: json.RawMessage("{}")})
			return err
		},
		"GET /v1/apps?cursor=c&limit=7":               func(c *client.Client) error { _, err := c.ListApps(ctx, one); return err },
		"GET /v1/apps/shop/versions?cursor=c&limit=7": func(c *client.Client) error { _, err := c.ListVersions(ctx, "shop", one); return err },
		"GET /v1/apps/shop/versions/v1.4.0+b2":        func(c *client.Client) error { _, err := c.GetVersion(ctx, "shop", "v1.4.0+b2"); return err },
		"DELETE /v1/apps/shop":                        func(c *client.Client) error { return c.DeleteApp(ctx, "shop") },
		"GET /v1/apps/shop":                           func(c *client.Client) error { _, err := c.GetApp(ctx, "shop"); return err },
		"POST /v1/installs key":                       func(c *client.Client) error { _, err := c.CreateInstall(ctx, wire.CreateInstallRequest{}); return err },
		"GET /v1/installs":                            func(c *client.Client) error { _, err := c.ListInstalls(ctx, client.ListOptions{}); return err },
		"GET /v1/installs/acme?effective=true":        func(c *client.Client) error { _, err := c.GetEffective(ctx, "acme"); return err },
		"PATCH /v1/installs/acme": func(c *client.Client) error {
			_, err := c.UpdateInstall(ctx, "acme", wire.UpdateInstallRequest{})
			return err
		},
		"DELETE /v1/installs/acme":                                    func(c *client.Client) error { return c.ForgetInstall(ctx, "acme", false) },
		"DELETE /v1/installs/acme?abandon=true":                       func(c *client.Client) error { return c.ForgetInstall(ctx, "acme", true) },
		"PUT /v1/installs/acme/stack":                                 func(c *client.Client) error { _, err := c.PutStack(ctx, "acme", wire.PutStackRequest{}); return err },
		"POST /v1/stacks/checks":                                      func(c *client.Client) error { return c.CheckStack(ctx, wire.CheckStackRequest{}) },
		"GET /v1/installs/acme/stack":                                 func(c *client.Client) error { _, err := c.GetStack(ctx, "acme"); return err },
		"GET /v1/stacks?behind=true&cursor=c&limit=7":                 func(c *client.Client) error { _, err := c.ListStacks(ctx, true, one); return err },
		"GET /v1/installs/acme/rendered?component=web&version=v1":     func(c *client.Client) error { _, err := c.RenderInstall(ctx, "acme", "v1", "web"); return err },
		"POST /runner/v1/session/install-keys":                        func(c *client.Client) error { return c.ReportKeys(ctx, map[string]string{"ins_1": "flk1_x"}) },
		"GET /v1/installs/acme/outputs":                               func(c *client.Client) error { _, err := c.GetOutputs(ctx, "acme", false); return err },
		"GET /v1/installs/acme/outputs?show_sensitive=true":           func(c *client.Client) error { _, err := c.GetOutputs(ctx, "acme", true); return err },
		"POST /v1/installs/acme/components/web/unlock?lock_id=lock-1": func(c *client.Client) error { return c.UnlockState(ctx, "acme", "web", "lock-1") },
		"PUT /v1/installs/acme/components/web/state": func(c *client.Client) error {
			_, err := c.PushState(ctx, "acme", "web", []byte("{}"))
			return err
		},
		"POST /v1/installs/acme/deployments key": func(c *client.Client) error {
			_, err := c.CreateDeployment(ctx, "acme", wire.CreateDeploymentRequest{})
			return err
		},
		"GET /v1/deployments?cursor=c&install=acme&limit=7": func(c *client.Client) error {
			_, err := c.ListDeployments(ctx, client.DeploymentFilter{Install: "acme"}, one)
			return err
		},
		"GET /v1/installs/acme/actions": func(c *client.Client) error { _, err := c.ListActions(ctx, "acme"); return err },
		"POST /v1/installs/acme/actions/backup/runs key": func(c *client.Client) error {
			_, err := c.RunAction(ctx, "acme", "backup", wire.RunActionRequest{})
			return err
		},
		"GET /v1/deployments/dep_1": func(c *client.Client) error { _, err := c.GetDeployment(ctx, "dep_1"); return err },
		"GET /v1/deployments/dep_1?after=4&wait_seconds=2": func(c *client.Client) error {
			_, err := c.WaitDeployment(ctx, "dep_1", 4, 1100*time.Millisecond)
			return err
		},
		"POST /v1/deployments/dep_1/approve": func(c *client.Client) error {
			_, err := c.ApproveDeployment(ctx, "dep_1", wire.ApproveRequest{})
			return err
		},
		"POST /v1/deployments/dep_1/cancel":    func(c *client.Client) error { _, err := c.CancelDeployment(ctx, "dep_1"); return err },
		"POST /v1/deployments/dep_1/retry key": func(c *client.Client) error { _, err := c.RetryDeployment(ctx, "dep_1"); return err },
		"GET /v1/jobs?deployment=dep_1": func(c *client.Client) error {
			_, err := c.ListJobs(ctx, client.JobFilter{Deployment: "dep_1"}, client.ListOptions{})
			return err
		},
		"POST /v1/apps/shop/builds key":                          func(c *client.Client) error { _, err := c.BuildApp(ctx, "shop", wire.BuildAppRequest{}); return err },
		"GET /v1/jobs/job_1":                                     func(c *client.Client) error { _, err := c.GetJob(ctx, "job_1"); return err },
		"POST /v1/jobs/job_1/cancel":                             func(c *client.Client) error { _, err := c.CancelJob(ctx, "job_1"); return err },
		"GET /v1/jobs/job_1/log?offset=5&wait_seconds=20":        func(c *client.Client) error { _, err := c.ReadJobLog(ctx, "job_1", 0, 5, 20*time.Second); return err },
		"GET /v1/jobs/job_1/log?epoch=2&offset=0&wait_seconds=0": func(c *client.Client) error { _, err := c.ReadJobLog(ctx, "job_1", 2, 0, 0); return err },
		"POST /v1/runners key":                                   func(c *client.Client) error { _, err := c.CreateRunner(ctx, wire.CreateRunnerRequest{}); return err },
		"GET /v1/runners":                                        func(c *client.Client) error { _, err := c.ListRunners(ctx, client.ListOptions{}); return err },
		"GET /v1/runners/local":                                  func(c *client.Client) error { _, err := c.GetRunner(ctx, "local"); return err },
		"POST /v1/runners/local/enrolments":                      func(c *client.Client) error { _, err := c.CreateEnrolment(ctx, "local"); return err },
		"POST /v1/installs/acme/migrate-state key":               func(c *client.Client) error { _, err := c.MigrateState(ctx, "acme"); return err },
		"POST /v1/runners/local/checks key":                      func(c *client.Client) error { _, err := c.CheckRunner(ctx, "local"); return err },
		"POST /v1/runners/local/logs key":                        func(c *client.Client) error { _, err := c.AskRunnerLog(ctx, "local"); return err },

		"POST /v1/service-accounts key": func(c *client.Client) error {
			_, err := c.CreateServiceAccount(ctx, wire.CreateServiceAccountRequest{})
			return err
		},
		"GET /v1/service-accounts?cursor=c&limit=7": func(c *client.Client) error { _, err := c.ListServiceAccounts(ctx, one); return err },
		"GET /v1/service-accounts/ci":               func(c *client.Client) error { _, err := c.GetServiceAccount(ctx, "ci"); return err },
		"PUT /v1/service-accounts/ci": func(c *client.Client) error {
			_, err := c.UpdateServiceAccount(ctx, "ci", wire.ServiceAccountSettings{})
			return err
		},
		"DELETE /v1/service-accounts/ci": func(c *client.Client) error { return c.DeleteServiceAccount(ctx, "ci") },
		"POST /v1/service-accounts/ci/logins key": func(c *client.Client) error {
			_, err := c.LogInServiceAccount(ctx, "ci", wire.LogInServiceAccountRequest{})
			return err
		},
		"PUT /v1/runners/local/service-accounts/ci":    func(c *client.Client) error { _, err := c.AssignServiceAccount(ctx, "local", "ci"); return err },
		"DELETE /v1/runners/local/service-accounts/ci": func(c *client.Client) error { return c.UnassignServiceAccount(ctx, "local", "ci") },
		"DELETE /v1/runners/local/sessions/ses":        func(c *client.Client) error { return c.EndSession(ctx, "local", "ses") },
		"GET /v1/runners/local/agents":                 func(c *client.Client) error { _, err := c.ListAgents(ctx, "local"); return err },
		"DELETE /v1/runners/local/agents/k":            func(c *client.Client) error { return c.RevokeAgent(ctx, "local", "k") },

		"POST /v1/tokens key":             func(c *client.Client) error { _, err := c.CreateToken(ctx, wire.CreateTokenRequest{}); return err },
		"GET /v1/tokens?cursor=c&limit=7": func(c *client.Client) error { _, err := c.ListTokens(ctx, one); return err },
		"DELETE /v1/tokens/ci":            func(c *client.Client) error { return c.RevokeToken(ctx, "ci") },
		"POST /v1/webhooks key":           func(c *client.Client) error { _, err := c.CreateWebhook(ctx, wire.CreateWebhookRequest{}); return err },
		"PUT /v1/runner-channels/stable": func(c *client.Client) error {
			_, err := c.SetRunnerChannel(ctx, "stable", wire.SetRunnerChannelRequest{})
			return err
		},
		"GET /v1/runner-channels?cursor=c&limit=7": func(c *client.Client) error { _, err := c.ListRunnerChannels(ctx, one); return err },
		"DELETE /v1/runner-channels/stable":        func(c *client.Client) error { return c.DeleteRunnerChannel(ctx, "stable") },
		"GET /v1/webhooks?cursor=c&limit=7":        func(c *client.Client) error { _, err := c.ListWebhooks(ctx, one); return err },
		"POST /v1/webhooks/ops/rotate key": func(c *client.Client) error {
			_, err := c.RotateWebhook(ctx, "ops", wire.RotateWebhookRequest{})
			return err
		},
		"DELETE /v1/webhooks/ops/earlier-keys":              func(c *client.Client) error { _, err := c.RevokeWebhookKeys(ctx, "ops"); return err },
		"GET /v1/keys":                                      func(c *client.Client) error { _, err := c.ListKeys(ctx); return err },
		"POST /v1/keys/rotate":                              func(c *client.Client) error { _, err := c.RotateKeys(ctx); return err },
		"POST /v1/keys/0123456789abcdef/revoke":             func(c *client.Client) error { _, err := c.RevokeKey(ctx, "0123456789abcdef"); return err },
		"POST /v1/key-sets":                                 func(c *client.Client) error { _, err := c.PutKeySet(ctx, wire.PutKeySetRequest{}); return err },
		"GET /v1/limits":                                    func(c *client.Client) error { _, err := c.GetLimits(ctx); return err },
		"GET /v1/audit":                                     func(c *client.Client) error { _, err := c.GetAudit(ctx); return err },
		"GET /v1/audit/chains?cursor=c&limit=7":             func(c *client.Client) error { _, err := c.ListAuditChains(ctx, one); return err },
		"GET /v1/audit/chains/org/entries?cursor=c&limit=7": func(c *client.Client) error { _, err := c.ListAuditEntries(ctx, "org", one); return err },
		"GET /v1/audit/checkpoints?cursor=c&limit=7":        func(c *client.Client) error { _, err := c.ListAuditCheckpoints(ctx, one); return err },
		"DELETE /v1/webhooks/ops":                           func(c *client.Client) error { return c.DeleteWebhook(ctx, "ops") },
		"GET /v1/webhooks/ops/deliveries?cursor=c&limit=7":  func(c *client.Client) error { _, err := c.ListDeliveries(ctx, "ops", one); return err },
		"POST /v1/webhooks/ops/deliveries/evt_1/redeliver":  func(c *client.Client) error { _, err := c.RedeliverWebhook(ctx, "ops", "evt_1"); return err },

		"POST /runner/v1/enrol":             func(c *client.Client) error { _, err := c.Enrol(ctx, wire.EnrolRequest{}); return err },
		"POST /runner/v1/challenges":        func(c *client.Client) error { _, err := c.Challenge(ctx); return err },
		"POST /runner/v1/sessions":          func(c *client.Client) error { _, err := c.CreateSession(ctx, wire.SessionRequest{}); return err },
		"POST /runner/v1/session/heartbeat": func(c *client.Client) error { _, err := c.HeartbeatSession(ctx, wire.SessionHeartbeat{}); return err },
		"POST /runner/v1/claims":            func(c *client.Client) error { _, err := c.Claim(ctx, 0, false); return err },
		"POST /runner/v1/warm-steps": func(c *client.Client) error {
			_, err := c.StartAhead(ctx, wire.AheadRequest{})
			return err
		},
		"POST /runner/v1/steps/adopt":             func(c *client.Client) error { _, err := c.AdoptSteps(ctx, wire.AdoptRequest{}); return err },
		"POST /runner/v1/warm-steps/wrm_1/end":    func(c *client.Client) error { _, err := c.EndWarmStep(ctx, "wrm_1"); return err },
		"POST /runner/v1/warm-steps/wrm_1/marker": func(c *client.Client) error { _, err := c.GetWarmMarker(ctx, "wrm_1"); return err },
		"POST /runner/v1/warm-steps/wrm_1/job": func(c *client.Client) error {
			_, err := c.AwaitJob(ctx, "wrm_1", "step-1234", nil, 0)
			return err
		},
		"POST /runner/v1/jobs/job_1/release": func(c *client.Client) error { return c.Release(ctx, "job_1", 3) },
		"POST /runner/v1/jobs/job_1/died":    func(c *client.Client) error { return c.Died(ctx, "job_1", wire.DiedRequest{}) },
		"POST /runner/v1/jobs/job_1/start":   func(c *client.Client) error { _, err := c.Start(ctx, "job_1", wire.StartRequest{}); return err },
		"POST /runner/v1/jobs/job_1/heartbeat": func(c *client.Client) error {
			_, err := c.HeartbeatJob(ctx, "job_1", time.Minute, time.Second)
			return err
		},
		"POST /runner/v1/jobs/job_1/pull-login":         func(c *client.Client) error { _, err := c.PullLogin(ctx, "job_1"); return err },
		"POST /runner/v1/jobs/job_1/image-build-access": func(c *client.Client) error { _, err := c.ImageBuild(ctx, "job_1"); return err },
		"POST /runner/v1/jobs/job_1/provenance":         func(c *client.Client) error { _, err := c.SignProvenance(ctx, "job_1", wire.Built{}); return err },
		"POST /runner/v1/jobs/job_1/log-access":         func(c *client.Client) error { _, err := c.RenewLogAccess(ctx, "job_1"); return err },
		"PUT /runner/v1/jobs/job_1/log?offset=5":        func(c *client.Client) error { _, err := c.AppendLog(ctx, "job_1", 5, []byte("line\n")); return err },
		"POST /runner/v1/jobs/job_1/finish":             func(c *client.Client) error { return c.Finish(ctx, "job_1", wire.FinishRequest{}) },
		"PUT /runner/v1/jobs/job_1/plan":                func(c *client.Client) error { return c.PutPlan(ctx, "job_1", []byte{1}) },
		"GET /runner/v1/jobs/job_1/values/inputs":       func(c *client.Client) error { _, err := c.GetValues(ctx, "job_1", "inputs"); return err },
		"GET /runner/v1/jobs/job_1/plan":                func(c *client.Client) error { _, err := c.GetPlan(ctx, "job_1"); return err },
	} {
		t.Run(want, func(t *testing.T) {
			s := serve(t, answer(struct{}{}))
			if err := call(s.client(t)); err != nil {
				t.Fatal(err)
			}
			r := s.requests[0]
			got := r.Method + " " + r.URL.String()
			if r.Header.Get(wire.HeaderIdempotencyKey) != "" {
				got += " key"
			}
			if got != want {
				t.Errorf("request %s, want %s", got, want)
			}
		})
	}
}

func TestLogGapReportsTheWantedOffset(t *testing.T) {
	s := serve(t, answer(wire.LogAppended{Next: 9}), text(409, "application/problem+json",
		`{"type":"urn:fairlead:problem:log-offset","status":409,"details":{"want":"4"}}`))
	c := s.client(t)
	if next, err := c.AppendLog(t.Context(), "job_1", 5, []byte("\x00\xff\n\"")); err != nil || next != 9 {
		t.Errorf("next offset %d, %v", next, err)
	}
	if s.bodies[0] != "\x00\xff\n\"" || s.requests[0].Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("the server received %q as %s", s.bodies[0], s.requests[0].Header.Get("Content-Type"))
	}
	_, err := c.AppendLog(t.Context(), "job_1", 9, nil)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code() != "log-offset" || e.Details["want"] != "4" {
		t.Errorf("error of a gap: %v", err)
	}
}

func TestTruncatedPlanIsRequestedAgain(t *testing.T) {
	s := serve(t, cutInside, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		io.WriteString(w, "the whole plan") //nolint:errcheck // the client may have gone
	})
	if got, err := s.client(t).GetPlan(t.Context(), "job_1"); err != nil || string(got) != "the whole plan" {
		t.Errorf("plan %q, %v", got, err)
	}
}
