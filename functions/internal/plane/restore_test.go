package plane_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/program"
)

// agent is a runner's agent and its steps, which the test plays request by request.
type agent struct {
	t   *testing.T
	id  string // of the runner
	key ed25519.PrivateKey
	*client.Client
}

// at returns the agent with a new session at the URL.
func (a agent) at(url string) agent {
	a.t.Helper()
	ctx, pub := a.t.Context(), a.key.Public().(ed25519.PublicKey)
	a.Client = must(client.New(url, "", client.Options{Retries: -1}))(a.t)
	ch := must(a.Challenge(ctx))(a.t)
	s := must(a.CreateSession(ctx, wire.SessionRequest{RunnerID: a.id, Nonce: ch.Nonce, Instance: "i", Version: "1", Capacity: 1, PublicKey: pub,
		Signature: ed25519.Sign(a.key, wire.SessionStatement(ch.Nonce, a.id, "i"))}))(a.t)
	a.Client = a.WithToken(s.Token)
	return a
}

// start claims the next job, checks its operation and starts its step.
func (a agent) start(operation string) (claim wire.Claim, step *client.Client) {
	a.t.Helper()
	claim = must(a.Claim(a.t.Context(), 10*time.Second, false))(a.t)
	if claim.Operation != operation {
		a.t.Fatalf("claimed the operation %s, want %s", claim.Operation, operation)
	}
	started := must(a.WithToken(claim.LaunchToken).Start(a.t.Context(), claim.Job, wire.StartRequest{StepID: "step-1234"}))(a.t)
	return claim, a.WithToken(started.LeaseToken)
}

// finish reports success of a job: a plan has one change.
func (a agent) finish(claim wire.Claim, step *client.Client) {
	a.t.Helper()
	in := wire.FinishRequest{Outcome: "succeeded"}
	if claim.Operation == "plan" {
		in.Plan = &wire.Plan{Digest: fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(claim.Job))), Changes: wire.Changes{Add: 1}, ChangeSet: &changeset.Set{V: changeset.Version, Changes: []changeset.Change{}}}
	}
	if err := step.Finish(a.t.Context(), claim.Job, in); err != nil {
		a.t.Fatal(err)
	}
}

// serves starts the functions of both APIs on the cloud's table.
func (c *cloud) serves() (controlURL, runnerURL string) {
	return front(c.t.(*testing.T), c.start("controlapi", c.controlAPI())), served(c.t.(*testing.T), c.runnerFront())
}

// restored returns the cloud with a table that AWS restored from a backup that is made now.
func (c *cloud) restored(table string) *cloud {
	c.t.Helper()
	return c.restoredFrom(c, table)
}

// restoredFrom returns the cloud with a table that AWS restored from a backup of the table of another cloud, which is made now.
func (c *cloud) restoredFrom(from *cloud, table string) *cloud {
	c.t.Helper()
	if err := dynamotest.Restore(c.t.Context(), from.config("DYNAMODB"), from.table, c.config("DYNAMODB"), table); err != nil {
		c.t.Fatal(err)
	}
	other := *c
	other.table = table
	return &other
}

// opsRestore runs `fairlead ops restore` on the cloud's table, while the stack's function has
// the environment serving. It returns the bodies of the requests for point-in-time recovery, which
// DynamoDB Local does not have.
func (c *cloud) opsRestore(serving *config.ControlAPI, more ...string) (output string, recovery []string, err error) {
	variables := must(config.Environ(serving))(c.t)
	lambda := served(c.t.(*testing.T), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/2015-03-31/functions/fairlead-test-controlapi/configuration" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Environment": map[string]any{"Variables": variables}})
	}))
	local := httputil.NewSingleHostReverseProxy(must(url.Parse(c.endpoints["DYNAMODB"]))(c.t))
	tables := served(c.t.(*testing.T), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateContinuousBackups") {
			body, _ := io.ReadAll(r.Body)
			recovery = append(recovery, string(body))
			w.Header().Set("X-Amz-Crc32", "2745614147") // of {}
			_, _ = io.WriteString(w, "{}")
			return
		}
		local.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	args := append([]string{"ops", "restore", "--table", c.table, "--stage", "test", "--region", c.region}, more...)
	cmd := exec.CommandContext(ctx, program.Build(c.t, "cmd/fairlead"), args...)
	cmd.Env = append(c.endpointsOf(), "AWS_ENDPOINT_URL_LAMBDA="+lambda, "AWS_ENDPOINT_URL_DYNAMODB="+tables,
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true", "HOME="+c.t.TempDir(), "PATH="+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), recovery, err
}

// An apply runs while the control plane moves to a table that AWS restored from an older
// backup. The functions refuse the restored table until `fairlead ops restore` has prepared
// it. Then they refuse the apply's lease, and plan its component before they change it.
// TestStories has the same story for the embedded server (restore.txtar).
func TestApplyAcrossARestoreIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 15 s; make test-all runs it")
	}
	c := newCloud(t)
	ctx := t.Context()
	stream := "s-" + c.table
	c.kinesis("CreateStream", map[string]any{"StreamName": stream, "ShardCount": 1}, nil) // in place of the function logindex
	first := must(plane.Control(ctx, c.config("DYNAMODB"), plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}, slog.New(slog.DiscardHandler)))(t)
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	must(first.PublishVersion(ctx, fairlead.DefaultOrg, "shop", must(app.Canonical())(t), map[string]string{"network": fmt.Sprintf("sha256:%064x", 1)}))(t)

	cfg := c.controlAPI()
	cfg.LogSubscriber = "arn:aws:kinesis:eu-central-1:123456789012:stream/" + stream
	function := c.start("controlapi", cfg)
	token := firstToken(t, function)
	person := must(client.New(front(t, function), token, client.Options{}))(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := agent{t: t, key: key}
	runner := must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "east"}))(t)
	install := must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: "acme", App: "shop", Runner: "east"}))(t)
	before := served(t, c.runnerFront())
	stranger := must(client.New(before, "", client.Options{}))(t)
	a.id = must(stranger.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, "east"))(t).Token, PublicKey: key.Public().(ed25519.PublicKey)}))(t).RunnerID
	a = a.at(before)
	west := agent{t: t, key: key, id: must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "west"}))(t).ID}

	must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: "late", App: "shop", Runner: "east"}))(t)
	deploy := func(person *client.Client, install string, automatic bool) wire.Deployment {
		return must(person.CreateDeployment(ctx, install, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: automatic}))(t)
	}
	deploy(person, "acme", true)
	a.finish(a.start("plan"))
	a.finish(a.start("apply"))

	// A deployment waits for approval, and a check is queued, when the backup is made.
	old := deploy(person, "acme", false)
	a.finish(a.start("plan"))
	check := must(person.CheckRunner(ctx, "west"))(t)
	backup := c.restored(c.table + "-backup")

	// After the backup another install is deployed for the first time, the plan is approved, and its apply begins.
	deploy(person, "late", true)
	a.finish(a.start("plan"))
	a.finish(a.start("apply"))
	must(person.ApproveDeployment(ctx, old.ID, wire.ApproveRequest{}))(t)
	apply, step := a.start("apply")

	// The functions do not serve the restored table yet: the apply's lease would fit the next attempt.
	early := c.start("runnerapi", backup.runnerAPI())
	<-early.Exited()
	if out := early.Output(); !strings.Contains(out, "fairlead ops restore --table "+backup.table) {
		t.Errorf("the function serves a table that was not made safe:\n%s", out)
	}
	// The queues and log groups are lost too, as in another Region.
	for _, id := range []string{runner.ID, west.id} {
		if err := must(plane.Queue(c.config("SQS"), c.prefix, true))(t).Drop(ctx, "runner-"+id); err != nil {
			t.Fatal(err)
		}
	}
	group, logs := c.logGroups+install.ID, cloudwatchlogs.NewFromConfig(c.config("CLOUDWATCH_LOGS"))
	must(logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &group}))(t)

	if out, _, err := c.opsRestore(cfg); err == nil || !strings.Contains(out, "all running jobs would be refused") {
		t.Errorf("the table that the functions serve is restored: %v\n%s", err, out)
	}
	out, recovery, err := backup.opsRestore(cfg)
	if err != nil || !strings.Contains(out, "2 installs, 1 components marked as unknown, 1 deployments canceled") || !strings.Contains(out, "make deploy TABLE="+backup.table) {
		t.Fatalf("ops restore: %v\n%s", err, out)
	}
	table := must(dynamodb.NewFromConfig(c.config("DYNAMODB")).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &backup.table}))(t).Table
	if table.StreamSpecification == nil || table.StreamSpecification.StreamViewType != dynamo.StreamView {
		t.Errorf("the restored table has the stream %+v", table.StreamSpecification)
	}
	if len(recovery) != 1 || !strings.Contains(recovery[0], `"PointInTimeRecoveryEnabled":true`) || !strings.Contains(recovery[0], backup.table) {
		t.Errorf("the requests for point-in-time recovery are %q", recovery)
	}
	if got := must(logs.DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String(group)}))(t); len(got.LogGroups) != 1 {
		t.Errorf("the install has %d log groups, want 1", len(got.LogGroups))
	}

	// The functions serve the restored table. The step's lease and the agent's session are refused.
	controlURL, runnerURL := backup.serves()
	person = must(client.New(controlURL, token, client.Options{}))(t)
	at := must(client.New(runnerURL, "", client.Options{Retries: -1}))(t)
	if err := at.WithToken(step.Token()).Finish(ctx, apply.Job, wire.FinishRequest{Outcome: "succeeded"}); !client.HasStatus(err, http.StatusUnauthorized) {
		t.Errorf("the lease of the apply: %v, want that it is refused", err)
	}
	if _, err := at.WithToken(a.Token()).Claim(ctx, 0, false); !client.HasStatus(err, http.StatusUnauthorized) {
		t.Errorf("the agent's session: %v, want that it is refused", err)
	}
	a = a.at(runnerURL)
	if d := must(person.GetDeployment(ctx, old.ID))(t); d.State != "canceled" {
		t.Errorf("the deployment of the backup is %s", d.State)
	}
	if state := componentState(t, person); state != "unknown" {
		t.Errorf("the component is %s, want unknown", state)
	}

	// A deployment plans first. Auto-approval does not cover the changes that the plan finds.
	d := deploy(person, "acme", true)
	a.finish(a.start("plan"))
	if d = must(person.GetDeployment(ctx, d.ID))(t); d.State != "awaiting-approval" {
		t.Errorf("with auto-approval the deployment is %s after its plan, want awaiting-approval", d.State)
	}
	must(person.ApproveDeployment(ctx, d.ID, wire.ApproveRequest{}))(t)
	a.finish(a.start("apply"))
	if state := componentState(t, person); state != "present" {
		t.Errorf("after an apply the component is %s, want present", state)
	}

	// The table does not know the component of the other install, so auto-approval does not cover its first plan either.
	d = deploy(person, "late", true)
	a.finish(a.start("plan"))
	if d = must(person.GetDeployment(ctx, d.ID))(t); d.State != "awaiting-approval" {
		t.Errorf("a component that was first applied after the backup is planned, and with auto-approval its deployment is %s, want awaiting-approval", d.State)
	}

	// The sweep sends the wake-up of the job that was queued in the backup.
	second := must(plane.Control(ctx, c.config("DYNAMODB"), plane.Resources{Table: backup.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}, slog.New(slog.DiscardHandler)))(t)
	second.Now = func() time.Time { return time.Now().Add(time.Minute) }
	second.Queue = must(plane.Queue(c.config("SQS"), c.prefix, false))(t)
	must(second.Sweep(ctx))(t)
	at = must(client.New(runnerURL, "", client.Options{}))(t)
	must(at.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, "west"))(t).Token, PublicKey: key.Public().(ed25519.PublicKey)}))(t)
	if claim, _ := west.at(runnerURL).start("check"); claim.Job != check.ID {
		t.Errorf("claimed %s, want the check %s that was queued in the backup", claim.Job, check.ID)
	}

	// Dispatch gets the restored table's changes from its new stream.
	batch := map[string]any{"Records": dynamodblocal.Records(t, c.endpoints["DYNAMODB"], backup.table)}
	must(c.start("dispatch", c.dispatch()).Invoke(ctx, batch))(t)
	if len(c.happened(d.ID)) == 0 {
		t.Error("no event of a deployment after the restore was published")
	}
}

// componentState returns the state of the only component of the install acme.
func componentState(t *testing.T, person *client.Client) string {
	t.Helper()
	install := must(person.GetInstall(t.Context(), "acme"))(t)
	if len(install.Components) != 1 {
		t.Fatalf("the install has the components %+v, want one", install.Components)
	}
	return install.Components[0].State
}
