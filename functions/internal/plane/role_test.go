package plane_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/test/hosts"
)

// again returns a command for another process of the same program.
func again(cmd *exec.Cmd) *exec.Cmd {
	other := exec.Command(cmd.Path, cmd.Args[1:]...)
	other.Env = cmd.Env
	return other
}

const (
	stsHost   = "sts.eu-central-1.amazonaws.com"
	ownRole   = "arn:aws:iam::123456789012:role/acme-runner"
	ownRoleID = "AROAACMEACMEACMEACME"
)

// An agent proves its AWS role to the function, which asks STS by the real host name over TLS. A
// proof opens one session: the table records its use, so that every other process refuses it.
func TestRoleProofOpensOneSession(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	r := plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}
	first := must(plane.Control(ctx, c.config("DYNAMODB"), r, slog.New(slog.DiscardHandler)))(t)
	if _, err := first.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "acme", AWSRole: ownRole, AWSRoleID: ownRoleID}, ""); err != nil {
		t.Fatal(err)
	}
	runner := string(must(first.Store.Runner(ctx, fairlead.DefaultOrg, "acme"))(t).V.ID)

	sts := ststest.New(time.Now)
	authority, proxy := hosts.Serve(t, map[string]http.Handler{stsHost: sts})
	cmd := function(t, "sessionapi")
	cmd.Env = append(c.environ(c.sessionAPI()), "SSL_CERT_FILE="+authority, "HTTPS_PROXY="+proxy)
	agent := must(client.New(front(t, runtimetest.Start(t, cmd, runtimetest.Timeout)), "", client.Options{Retries: -1}))(t)
	creds := sts.AssumeRole("aws", "123456789012", "acme-runner", ownRoleID, "task-1")
	another := must(client.New(front(t, runtimetest.Start(t, again(cmd), runtimetest.Timeout)), "", client.Options{Retries: -1}))(t)
	request := func(audience string, at time.Time) wire.SessionRequest {
		ch := must(agent.Challenge(ctx))(t)
		e, _ := awsiam.EndpointOf("eu-central-1", false)
		p := must(sign.Proof(ctx, credentials.StaticCredentialsProvider{Value: aws.Credentials(creds)}, e,
			awsiam.Challenge{Nonce: ch.Nonce, Audience: audience, Statement: wire.SessionStatement(ch.Nonce, runner, "task")}, at))(t)
		return wire.SessionRequest{RunnerID: runner, Nonce: ch.Nonce, Instance: "task", Version: "1", Capacity: 1,
			AWSIAM: &wire.AWSIAMProof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}}
	}
	const own = "fairlead.example"
	good, unused := request(own, time.Now()), request(own, time.Now())
	renamed, redirected := unused, unused
	renamed.Instance = "another task"
	redirected.RunnerID = "run_0123456789abcdefghijklmnop"
	for _, tt := range []struct {
		what    string
		to      *client.Client
		request wire.SessionRequest
		refused bool
	}{
		{"the runner's own role", agent, good, false},
		{"the same request repeated by an attacker", agent, good, true},
		{"again, to another process of the function", another, good, true},
		{"signed for another control plane", agent, request("evil.example", time.Now()), true},
		{"a proof of one task in the name of another", agent, renamed, true},
		{"a proof of one runner in the name of another", agent, redirected, true},
		{"by a clock that is six minutes behind", agent, request(own, time.Now().Add(-6*time.Minute)), true},
		{"by a clock that is six minutes ahead", agent, request(own, time.Now().Add(6*time.Minute)), true},
		{"by a clock that is four minutes behind", agent, request(own, time.Now().Add(-4*time.Minute)), false},
	} {
		_, err := tt.to.CreateSession(ctx, tt.request)
		if tt.refused && !client.HasStatus(err, http.StatusUnauthorized) || !tt.refused && err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}

// A control plane gets a host name of its own when runners use API Gateway's address already. A
// runner signs the host that its stack names, so the control plane accepts each address for itself,
// and no other.
func TestDomainAddedLaterKeepsRunnersConnected(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	const before, domain = "a1b2c3.execute-api.eu-central-1.amazonaws.com", "fairlead.example"
	r := plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}
	first := must(plane.Control(ctx, c.config("DYNAMODB"), r, slog.New(slog.DiscardHandler)))(t)
	if _, err := first.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "acme", AWSRole: ownRole, AWSRoleID: ownRoleID}, ""); err != nil {
		t.Fatal(err)
	}
	runner := string(must(first.Store.Runner(ctx, fairlead.DefaultOrg, "acme"))(t).V.ID)
	sts := ststest.New(time.Now)
	authority, proxy := hosts.Serve(t, map[string]http.Handler{stsHost: sts})
	creds := sts.AssumeRole("aws", "123456789012", "acme-runner", ownRoleID, "task-1")
	// serve returns the URL of a function whose stack has the URL and the others.
	serve := func(address string, others ...string) string {
		cfg := c.sessionAPI()
		cfg.URL, cfg.OtherURLs = address, others
		cmd := function(t, "sessionapi")
		cmd.Env = append(c.environ(cfg), "SSL_CERT_FILE="+authority, "HTTPS_PROXY="+proxy)
		return front(t, runtimetest.Start(t, cmd, runtimetest.Timeout))
	}
	// session asks for a session at the host with a proof for the audience, and returns the status.
	session := func(url, host, audience string) int {
		ch := must(must(client.New(url, "", client.Options{Retries: -1}))(t).Challenge(ctx))(t)
		e, _ := awsiam.EndpointOf("eu-central-1", false)
		p := must(sign.Proof(ctx, credentials.StaticCredentialsProvider{Value: aws.Credentials(creds)}, e,
			awsiam.Challenge{Nonce: ch.Nonce, Audience: audience, Statement: wire.SessionStatement(ch.Nonce, runner, "task")}, time.Now()))(t)
		body := must(json.Marshal(wire.SessionRequest{RunnerID: runner, Nonce: ch.Nonce, Instance: "task", Version: "1", Capacity: 1,
			AWSIAM: &wire.AWSIAMProof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}}))(t)
		req := must(http.NewRequestWithContext(ctx, wire.CreateSession.Method, url+wire.CreateSession.Path, bytes.NewReader(body)))(t)
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		res := must(http.DefaultClient.Do(req))(t)
		_ = res.Body.Close()
		return res.StatusCode
	}
	old, named := serve("https://"+before), serve("https://"+domain, "https://"+before)
	for _, row := range []struct {
		what, url, host, audience string
		status                    int
	}{
		{"before the domain, a runner uses API Gateway's address", old, before, before, http.StatusCreated},
		{"after it, the same runner goes on", named, before, before, http.StatusCreated},
		{"a new runner uses the domain", named, domain, domain, http.StatusCreated},
		{"a proof for the domain is repeated at the other address", named, before, domain, http.StatusUnauthorized},
		{"a stranger's host and a proof for it", named, "evil.example", "evil.example", http.StatusUnauthorized},
		{"a proof for a stranger's host at the domain", named, domain, "evil.example", http.StatusUnauthorized},
	} {
		if got := session(row.url, row.host, row.audience); got != row.status {
			t.Errorf("%s: status %d, want %d", row.what, got, row.status)
		}
	}
}

// Runners pin both signing keys when they enrol. When the first key is lost, the stack signs with
// the spare key, and a runner from before accepts the jobs.
func TestSpareKeySignsForEarlierRunners(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	cfg := c.controlAPI()
	cfg.SpareKey, cfg.Version = c.spareKey, "v1.4.0"
	person := must(client.New(front(t, c.start("controlapi", cfg)), "", client.Options{}))(t)
	person = person.WithToken(firstToken(t, c.start("controlapi", cfg)))
	meta := must(person.Meta(ctx))(t)
	if len(meta.Keys) != 2 || !c.pub.Equal(ed25519.PublicKey(meta.Keys[0].PublicKey)) || !c.sparePub.Equal(ed25519.PublicKey(meta.Keys[1].PublicKey)) {
		t.Fatalf("a new runner pins %+v, want both keys", meta.Keys)
	}
	if meta.Version != "v1.4.0" { // the stack's parameter; the build of a function has no version
		t.Errorf("the control plane reports the version %q, want the one in its environment", meta.Version)
	}
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "east"}))(t)
	session := c.sessionAPI()
	session.SpareKey = c.spareKey
	stranger := must(client.New(front(t, c.start("sessionapi", session)), "", client.Options{}))(t)
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	enrolled := must(stranger.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, "east"))(t).Token, PublicKey: pub}))(t)
	if len(enrolled.Keys) != 2 {
		t.Fatalf("enrolled with %d keys, want 2", len(enrolled.Keys))
	}
	var pinned []ed25519.PublicKey
	for _, k := range enrolled.Keys {
		pinned = append(pinned, k.PublicKey)
	}

	// The first key is lost. The functions sign with the spare key.
	lost := *c
	lost.signingKey, lost.spareKey = c.spareKey, "arn:aws:kms:eu-central-1:123456789012:key/lost"
	after := lost.sessionAPI()
	after.SpareKey = lost.spareKey
	person = must(client.New(front(t, lost.start("controlapi", lost.controlAPI())), person.Token(), client.Options{}))(t)
	must(client.New(front(t, lost.start("sessionapi", after)), "", client.Options{}))(t) // it starts without the lost key
	a := agent{t: t, id: enrolled.RunnerID, key: key}.at(served(t, lost.runnerFront()))
	must(person.CheckRunner(ctx, "east"))(t)
	claim := must(a.Claim(ctx, 10*time.Second, false))(t)
	started := must(a.WithToken(claim.LaunchToken).Start(ctx, claim.Job, wire.StartRequest{StepID: "step-1234"}))(t)
	expect := events.Expect{Runner: fairlead.RunnerID(enrolled.RunnerID), Job: fairlead.JobID(claim.Job), Epoch: claim.Epoch, Operation: "check", Operations: []string{"check"}}
	if _, err := events.Verify(ctx, started.Envelope, pinned, expect, time.Now()); err != nil {
		t.Errorf("a runner from before refuses a job of the spare key: %v", err)
	}
	if _, err := events.Verify(ctx, started.Envelope, pinned[:1], expect, time.Now()); err == nil {
		t.Error("the job was signed with the lost key")
	}
}
