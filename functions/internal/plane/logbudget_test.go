package plane_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// A job writes to its log group without end. The index cuts its log at the budget of its runner. The Runner API then answers
// the job's renewals with the cut, refuses its appends and accepts its report, and a reader sees the reason. The log of
// another runner is not cut, although it comes between.
func TestNoisyRunnersLogIsCutOnAWS(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	first, token := c.admin()
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	must(first.PublishVersion(ctx, fairlead.DefaultOrg, "shop", must(app.Canonical())(t), map[string]string{"network": fmt.Sprintf("sha256:%064x", 1)}))(t)
	withKinesis := c.controlAPI() // moto subscribes a log group only to what exists
	withKinesis.LogSubscriber = "arn:aws:kinesis:eu-central-1:123456789012:stream/s-" + c.table
	c.kinesis("CreateStream", map[string]any{"StreamName": "s-" + c.table, "ShardCount": 1}, nil)
	person := must(client.New(front(t, c.start("controlapi", withKinesis)), token, client.Options{}))(t)
	small := c.logIndex()
	small.LogBurst, small.LogPerHour = 1, 1 // counted in steps of 16 KiB
	index := c.start("logindex", small)
	agents := must(client.New(served(t, c.runnerFront()), "", client.Options{}))(t)

	type running struct {
		claim wire.Claim
		step  *client.Client
		group string
		size  int
		sum   uint32
	}
	begin := func(runner, name string) *running {
		must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: runner}))(t)
		install := must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: name, App: "shop", Runner: runner}))(t)
		pub, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		enrolled := must(agents.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, runner))(t).Token, PublicKey: pub}))(t)
		ch := must(agents.Challenge(ctx))(t)
		agent := agents.WithToken(must(agents.CreateSession(ctx, wire.SessionRequest{RunnerID: enrolled.RunnerID, Nonce: ch.Nonce, Instance: "i", Version: "1", Capacity: 1, PublicKey: pub,
			Signature: ed25519.Sign(key, wire.SessionStatement(ch.Nonce, enrolled.RunnerID, "i"))}))(t).Token)
		must(person.CreateDeployment(ctx, name, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true}))(t)
		claim := must(agent.Claim(ctx, 10*time.Second, false))(t)
		started := must(agent.WithToken(claim.LaunchToken).Start(ctx, claim.Job, wire.StartRequest{StepID: "step-1234"}))(t)
		return &running{claim: claim, step: agent.WithToken(started.LeaseToken), group: c.logGroups + install.ID}
	}
	deliver := func(r *running) {
		piece := strings.Repeat("x", 64<<10)
		must(index.Invoke(ctx, delivery(t, r.group, fmt.Sprintf("%s/%d", r.claim.Job, r.claim.Epoch), fmt.Sprintf("%d t %s", r.size, piece))))(t)
		r.size, r.sum = r.size+len(piece), crc32.Update(r.sum, crc32.IEEETable, []byte(piece))
	}
	noisy, quiet := begin("noisy", "acme"), begin("quiet", "globex")
	for range 8 {
		for range 4 {
			deliver(noisy)
		}
		deliver(quiet)
	}
	// A budget of 1 MiB, what it grows by during the test, and the append that finds it empty.
	j := must(person.GetJob(ctx, noisy.claim.Job))(t)
	if len(j.Log) != 1 {
		t.Fatalf("the noisy job has the logs %+v", j.Log)
	}
	stored := j.Log[0].Size
	if stored < 1<<20 || stored > 18*64<<10 || j.Log[0].TruncatedBy != wire.ByLogBudget || j.Log[0].Ended {
		t.Errorf("while it runs the log of the noisy job is %+v, want a cut one of little more than 1 MiB", j.Log)
	}
	if l := must(noisy.step.HeartbeatJob(ctx, noisy.claim.Job, 0, 0))(t); !l.LogCut {
		t.Error("the answer to a renewal does not report the cut")
	}
	if l := must(quiet.step.HeartbeatJob(ctx, quiet.claim.Job, 0, 0))(t); l.LogCut {
		t.Error("the log of the other runner is reported as cut")
	}
	if _, err := noisy.step.AppendLog(ctx, noisy.claim.Job, stored, []byte("more")); !client.HasCode(err, string(fairlead.CodeLogCut)) || !client.HasStatus(err, http.StatusRequestEntityTooLarge) {
		t.Errorf("an append to the cut log gets %v", err)
	}
	for _, r := range []*running{noisy, quiet} {
		if err := r.step.Finish(ctx, r.claim.Job, wire.FinishRequest{Outcome: "failed", Reason: "tool-failed", Log: wire.LogEnd{Size: int64(r.size), CRC32: r.sum}}); err != nil {
			t.Error(err)
		}
	}
	if j := must(person.GetJob(ctx, noisy.claim.Job))(t); j.Log[0].Size != stored || !j.Log[0].Truncated || j.Log[0].TruncatedBy != wire.ByLogBudget {
		t.Errorf("the log of the noisy job ended as %+v", j.Log)
	}
	if j := must(person.GetJob(ctx, quiet.claim.Job))(t); j.Log[0].Size != int64(quiet.size) || j.Log[0].Truncated || j.Log[0].TruncatedBy != "" {
		t.Errorf("the log of the other runner ended as %+v, want %d bytes", j.Log, quiet.size)
	}
}

// delivery returns the event of a subscription with one message.
func delivery(t *testing.T, group, stream, message string) map[string]any {
	t.Helper()
	text := must(json.Marshal(map[string]any{"messageType": "DATA_MESSAGE", "logGroup": group, "logStream": stream, "logEvents": []any{map[string]any{"message": message}}}))(t)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must(z.Write(text))(t)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"awslogs": map[string]any{"data": base64.StdEncoding.EncodeToString(b.Bytes())}}
}
