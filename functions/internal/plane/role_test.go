package plane_test

import (
	"log/slog"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

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
	agent := must(client.New(front(t, runtimetest.Start(t, cmd)), "", client.Options{Retries: -1}))(t)
	creds := sts.AssumeRole("aws", "123456789012", "acme-runner", ownRoleID, "task-1")
	another := must(client.New(front(t, runtimetest.Start(t, again(cmd))), "", client.Options{Retries: -1}))(t)
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
