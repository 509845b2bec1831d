package plane_test

import (
	"log/slog"
	"net/http"
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
)

const (
	stsHost   = "sts.eu-central-1.amazonaws.com"
	ownRole   = "arn:aws:iam::123456789012:role/acme-runner"
	ownRoleID = "AROAACMEACMEACMEACME"
)

// An agent proves its AWS role to the function, which asks STS by the host's
// real name, over TLS. What was signed for another control plane is refused.
func TestARoleBuysASessionOfTheFunction(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	r := plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}
	first := must(plane.Control(ctx, c.config("DYNAMODB"), r, slog.New(slog.DiscardHandler)))(t)
	if _, err := first.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "acme", AWSRole: ownRole, AWSRoleID: ownRoleID}, ""); err != nil {
		t.Fatal(err)
	}
	runner := string(must(first.Store.Runner(ctx, fairlead.DefaultOrg, "acme"))(t).V.ID)

	sts := ststest.New(time.Now)
	authority, proxy := runtimetest.OnTheNet(t, map[string]http.Handler{stsHost: sts})
	cmd := program(t, "runnerapi")
	cmd.Env = append(c.environ(c.runnerAPI()), "SSL_CERT_FILE="+authority, "HTTPS_PROXY="+proxy)
	agent := must(client.New(front(t, runtimetest.Start(t, cmd)), "", client.Options{Retries: -1}))(t)
	creds := sts.AssumeRole("aws", "123456789012", "acme-runner", ownRoleID, "task-1")
	ask := func(audience string) error {
		ch := must(agent.Challenge(ctx))(t)
		e, _ := awsiam.EndpointOf("eu-central-1", false)
		p := must(sign.Proof(ctx, credentials.StaticCredentialsProvider{Value: aws.Credentials(creds)}, e,
			awsiam.Challenge{Nonce: ch.Nonce, Audience: audience, Statement: wire.SessionStatement(ch.Nonce, runner, "task")}, time.Now()))(t)
		_, err := agent.CreateSession(ctx, wire.SessionRequest{RunnerID: runner, Nonce: ch.Nonce, Instance: "task", Version: "1", Capacity: 1,
			AWSIAM: &wire.AWSIAMProof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}})
		return err
	}
	if err := ask("fairlead.example"); err != nil {
		t.Errorf("the runner's own role: %v", err)
	}
	if err := ask("evil.example"); !client.HasStatus(err, http.StatusUnauthorized) {
		t.Errorf("signed for another control plane: %v", err)
	}
	if n := sts.Asked(); n != 2 {
		t.Errorf("STS was asked %d times, want 2", n)
	}
}
