package plane_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/seal/kms/kmstest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// sealedShop has a sensitive input, which a component gets.
const sealedShop = `fairlead: v1
name: shop
inputs:
  password: {type: string, sensitive: true, required: true}
components:
  network: {type: terraform, source: ./network, vars: {password: "${inputs.password}"}}
`

// useReplicas gives the cloud replicas of another cloud's keys, as a stack with the parameter ExistingKeys uses those of the
// spare stack. KMS has replicated them before the loss of the other cloud's Region. A replica has its key's ARN with another
// Region.
func (c *cloud) useReplicas(of *cloud) {
	c.t.Helper()
	there := func(arn string) string { return strings.Replace(arn, ":"+of.region+":", ":"+c.region+":", 1) }
	client := awskms.NewFromConfig(of.config("KMS"))
	for _, key := range []string{of.sealKey, of.tokenKey} {
		made := must(client.ReplicateKey(c.t.Context(), &awskms.ReplicateKeyInput{KeyId: &key, ReplicaRegion: &c.region}))(c.t)
		if *made.ReplicaKeyMetadata.Arn != there(key) {
			c.t.Fatalf("the replica of %s is %s", key, *made.ReplicaKeyMetadata.Arn)
		}
	}
	c.sealKey, c.tokenKey, c.signingKey, c.spareKey = there(of.sealKey), there(of.tokenKey), there(of.signingKey), there(of.spareKey)
	c.pub, c.sparePub, c.signing = of.pub, of.sparePub, map[string]ed25519.PrivateKey{}
	for arn, key := range of.signing {
		c.signing[there(arn)] = key
	}
	c.endpoints["KMS"] = kmstest.Start(c.t, c.endpoints["S3"], c.signing)
}

// aloneIn makes the services refuse, and the test fail at, each request that is signed for another Region than the cloud's.
func (c *cloud) aloneIn(t *testing.T) {
	endpoints := map[string]string{}
	for service, endpoint := range c.endpoints {
		local := httputil.NewSingleHostReverseProxy(must(url.Parse(endpoint))(t))
		endpoints[service] = served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Authorization"), "/"+c.region+"/") {
				t.Errorf("a request to %s is not for the Region %s: %s", service, c.region, r.Header.Get("Authorization"))
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			local.ServeHTTP(w, r)
		}))
	}
	c.endpoints = endpoints
}

// copyObjects copies the current objects of a bucket, as S3's replication and `aws s3 sync` do.
func (c *cloud) copyObjects(from, to string) (keys []string) {
	c.t.Helper()
	s3 := awss3.NewFromConfig(c.config("S3"), func(o *awss3.Options) { o.UsePathStyle = true })
	pages := awss3.NewListObjectsV2Paginator(s3, &awss3.ListObjectsV2Input{Bucket: &from})
	for pages.HasMorePages() {
		for _, o := range must(pages.NextPage(c.t.Context()))(c.t).Contents {
			source := from + "/" + *o.Key
			must(s3.CopyObject(c.t.Context(), &awss3.CopyObjectInput{Bucket: &to, Key: o.Key, CopySource: &source}))(c.t)
			keys = append(keys, *o.Key)
		}
	}
	return keys
}

// replicate copies the current objects of a bucket and deletes the copies of deleted ones, as S3's replication does.
func (c *cloud) replicate(from, to string) {
	c.t.Helper()
	s3 := awss3.NewFromConfig(c.config("S3"), func(o *awss3.Options) { o.UsePathStyle = true })
	kept := c.copyObjects(from, to)
	if len(kept) == 0 {
		c.t.Errorf("the bucket %s has no object to copy", from)
	}
	for _, o := range must(s3.ListObjectsV2(c.t.Context(), &awss3.ListObjectsV2Input{Bucket: &to}))(c.t).Contents {
		if !slices.Contains(kept, *o.Key) {
			must(s3.DeleteObject(c.t.Context(), &awss3.DeleteObjectInput{Bucket: &to, Key: o.Key}))(c.t)
		}
	}
}

// withLogGroups returns the configuration of controlapi with a stream as the subscriber of log groups, in place of the function
// logindex.
func (c *cloud) withLogGroups() *config.ControlAPI {
	c.t.Helper()
	stream := "s-" + c.table
	c.kinesis("CreateStream", map[string]any{"StreamName": stream, "ShardCount": 1}, nil)
	cfg := c.controlAPI()
	cfg.SpareKey = c.spareKey
	cfg.LogSubscriber = "arn:aws:kinesis:" + c.region + ":123456789012:stream/" + stream
	return cfg
}

// createdToken requests a token with always the same idempotency key. It returns the token, or the problem.
func createdToken(ctx context.Context, t *testing.T, person *client.Client) (token, problem string) {
	t.Helper()
	r := must(http.NewRequestWithContext(ctx, wire.CreateToken.Method, person.URL()+wire.CreateToken.Path, strings.NewReader(`{"name":"ci"}`)))(t)
	r.Header.Set("Authorization", "Bearer "+person.Token())
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(wire.HeaderIdempotencyKey, "the-first-request")
	res := must(http.DefaultClient.Do(r))(t)
	defer func() { _ = res.Body.Close() }() // all that matters was read
	var answer struct{ Token, Code string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.Token, answer.Code
}

// A Region is lost while an apply runs. What is left is what the spare stack has in another Region: a copy of the table's
// backup, copies of the blobs and of the archived logs, and replicas of the keys. A control plane that starts there with the
// steps of the runbook serves the same installs to the same runners. Nothing asks the lost Region.
func TestLostRegionIsRecoveredInTheSpareRegion(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 15 s; make test-all runs it")
	}
	c := newCloud(t)
	ctx := t.Context()
	function := c.start("controlapi", c.withLogGroups())
	person := must(client.New(front(t, function), firstToken(t, function), client.Options{}))(t)
	app, problems := appspec.Parse("app.yaml", []byte(sealedShop))
	if problems != nil {
		t.Fatal(problems)
	}
	must(person.PublishVersion(ctx, "shop", wire.PublishVersionRequest{Config: must(app.Canonical())(t), Artifacts: map[string]string{"network": fmt.Sprintf("sha256:%064x", 1)}}))(t)
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "east", Storage: "http"}))(t)
	must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: "acme", App: "shop", Runner: "east", Inputs: map[string]json.RawMessage{"password": []byte(`"hush"`)}}))(t)
	session := c.sessionAPI()
	session.SpareKey = c.spareKey
	stranger := must(client.New(front(t, c.start("sessionapi", session)), "", client.Options{}))(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	enrolled := must(stranger.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, "east"))(t).Token, PublicKey: key.Public().(ed25519.PublicKey)}))(t)
	a := agent{t: t, id: enrolled.RunnerID, key: key}.at(served(t, c.runnerFront()))
	token, problem := createdToken(ctx, t, person)
	if token == "" {
		t.Fatalf("no token was created: %s", problem)
	}

	// The component is applied: its state is a blob, and its log is archived.
	deploy := func(person *client.Client) wire.Deployment {
		return must(person.CreateDeployment(ctx, "acme", wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true}))(t)
	}
	planned := wire.FinishRequest{Outcome: "succeeded", Plan: &wire.Plan{Digest: fmt.Sprintf("sha256:%064x", 2), Changes: wire.Changes{Add: 1}, ChangeSet: &changeset.Set{V: changeset.Version, Changes: []changeset.Change{}}}}
	state, log := stateOfSize(1, 1000), []byte("aws_vpc.main: Creating...\n")
	deploy(person)
	finish(t, c.next(t, a.Client, a.id), planned)
	applying := c.next(t, a.Client, a.id)
	applying.mustTool("PUT", "/lock", nil, []byte(`{"ID":"lock-1"}`))
	applying.mustTool("POST", "", url.Values{"ID": {"lock-1"}}, state)
	applying.mustTool("DELETE", "/lock", nil, []byte(`{"ID":"lock-1"}`))
	must(applying.AppendLog(ctx, applying.claim.Job, 0, log))(t)
	finish(t, applying, wire.FinishRequest{Outcome: "succeeded", Mutated: true, Log: wire.LogEnd{Size: int64(len(log)), CRC32: crc32.ChecksumIEEE(log)}})
	must(c.start("dispatch", c.dispatch()).Invoke(ctx, map[string]any{"Records": dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)}))(t)
	index := c.start("logindex", c.logIndex())
	for _, e := range c.happened(applying.claim.Job) {
		must(index.Invoke(ctx, e))(t)
	}

	// The spare stack has the replicas since it was created. A backup is copied, and the blobs and logs are replicated. In the
	// backup a deployment is planned, and its apply waits.
	there := newCloudIn(t, spareRegion)
	there.useReplicas(c)
	old := deploy(person)
	finish(t, c.next(t, a.Client, a.id), planned)
	backup := there.restoredFrom(c, "fairlead-test-restored")
	spare := newCloudIn(t, spareRegion)
	c.replicate(c.bucket, spare.bucket)
	c.replicate(c.archive, spare.archive)

	// The Region is lost while the apply runs. The apply has written so many states that the one of the backup was deleted.
	lost := c.next(t, a.Client, a.id)
	lost.mustTool("PUT", "/lock", nil, []byte(`{"ID":"lock-2"}`))
	for serial := range 25 {
		lost.mustTool("POST", "", url.Values{"ID": {"lock-2"}}, stateOfSize(serial+2, 1000))
	}
	c.replicate(c.bucket, spare.bucket)

	// The control plane in the spare Region starts as the runbook has it. Without the name of the bucket of copies, the command
	// names the component whose state it does not find.
	there.aloneIn(t)
	backup.endpoints = maps.Clone(there.endpoints)
	there.copyObjects(spare.bucket, there.bucket)
	there.copyObjects(spare.archive, there.archive)
	serving := there.withLogGroups()
	out, _, err := backup.opsRestore(serving)
	if err != nil || !strings.Contains(out, "1 installs, 1 components marked as unknown, 1 deployments canceled") || !strings.Contains(out, "No bucket has the state or the values of acme/network") {
		t.Fatalf("ops restore: %v\n%s", err, out)
	}
	out, _, err = backup.opsRestore(serving, "--blobs", spare.bucket)
	if err != nil || !strings.Contains(out, "1 deleted blobs exist again") || strings.Contains(out, "acme/network") {
		t.Fatalf("ops restore with the copies of blobs: %v\n%s", err, out)
	}
	controlURL, runnerURL := backup.serves()
	person = must(client.New(controlURL, person.Token(), client.Options{}))(t)

	// Sessions and leases from before are refused, although the replica of the key of tokens has minted them.
	at := must(client.New(runnerURL, "", client.Options{Retries: -1}))(t)
	if err := at.WithToken(lost.Token()).Finish(ctx, lost.claim.Job, wire.FinishRequest{Outcome: "succeeded"}); !client.HasStatus(err, http.StatusUnauthorized) {
		t.Errorf("the lease of the apply: %v, want that it is refused", err)
	}
	if _, err := at.WithToken(a.Token()).Claim(ctx, 0, false); !client.HasStatus(err, http.StatusUnauthorized) {
		t.Errorf("the agent's session: %v, want that it is refused", err)
	}
	if repeated, problem := createdToken(ctx, t, person); repeated != token {
		t.Errorf("a repeated request for a token returns another one; problem %q", problem)
	}
	if d := must(person.GetDeployment(ctx, old.ID))(t); d.State != "canceled" {
		t.Errorf("the deployment of the backup is %s", d.State)
	}
	if state := componentState(t, person); state != "unknown" {
		t.Errorf("the component is %s, want unknown", state)
	}
	if got := must(person.ReadJobLog(ctx, applying.claim.Job, applying.claim.Epoch, 0, 0))(t); !bytes.Equal(got.Data, log) {
		t.Errorf("the archived log reads %q", got.Data)
	}
	if got := must(person.GetJob(ctx, applying.claim.Job))(t).Log; len(got) != 1 || got[0].Size != int64(len(log)) || !got[0].Ended {
		t.Errorf("the job has the logs %+v, want the archived one", got)
	}

	// The agent opens a session and accepts the jobs: next verifies them with the key that it pinned when it enrolled.
	backup.pub = ed25519.PublicKey(enrolled.Keys[0].PublicKey)
	a = a.at(runnerURL)
	d := deploy(person)
	planning := backup.next(t, a.Client, a.id)
	if got := must(planning.GetValues(ctx, planning.claim.Job, planning.spec.Values[0].Name))(t); !bytes.Contains(got, []byte(`"hush"`)) {
		t.Errorf("the step gets the values %s", got)
	}
	if got := planning.mustTool("GET", "", nil, nil); !bytes.Equal(got, state) {
		t.Errorf("the state reads %s", got)
	}
	finish(t, planning, planned)
	if d = must(person.GetDeployment(ctx, d.ID))(t); d.State != "awaiting-approval" {
		t.Errorf("with auto-approval the deployment is %s after its plan, want awaiting-approval", d.State)
	}
	must(person.ApproveDeployment(ctx, d.ID, wire.ApproveRequest{}))(t)
	finish(t, backup.next(t, a.Client, a.id), wire.FinishRequest{Outcome: "succeeded", Mutated: true})
	if d, state := must(person.GetDeployment(ctx, d.ID))(t), componentState(t, person); d.State != "succeeded" || state != "present" {
		t.Errorf("after the apply the deployment is %s and the component %s", d.State, state)
	}

	// A runner that enrols now pins the same keys.
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "west"}))(t)
	session = backup.sessionAPI()
	session.SpareKey = backup.spareKey
	stranger = must(client.New(front(t, backup.start("sessionapi", session)), "", client.Options{}))(t)
	west := must(stranger.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, "west"))(t).Token, PublicKey: key.Public().(ed25519.PublicKey)}))(t)
	if len(enrolled.Keys) != 2 || fmt.Sprint(west.Keys) != fmt.Sprint(enrolled.Keys) {
		t.Errorf("a new runner pins %v, want %v", west.Keys, enrolled.Keys)
	}
	if want := "123456789012.dkr.ecr." + spareRegion + ".amazonaws.com"; west.Registry != want {
		t.Errorf("a new runner pulls from %s, want %s", west.Registry, want)
	}
}
