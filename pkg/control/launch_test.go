package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	rolebound "github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
)

// TestStolenLaunchTokenStartsNothing: a role in the customer's account reads the launch token of a task, for example from the
// account's event bus. Without the role of the task, the token starts nothing, and the job's own step still starts.
func TestStolenLaunchTokenStartsNothing(t *testing.T) {
	const host, account, stepRole = "fairlead.example", "123456789012", "fairlead-step-provision-ins_1"
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		unprepared := p.claim()
		if unprepared.Bindable {
			t.Error("a control plane that verifies no roles lets agents bind tokens")
		}
		p.must("release", func() error { return p.ReleaseJob(p.ctx, p.session, unprepared.ID, unprepared.Lease.Epoch) })
		sts := ststest.New(p.Now)
		p.AWS = awsiam.NewVerifier(handled{sts}, p.Now, awsiam.Options{})
		c := p.claim()
		if !c.Bindable {
			t.Fatal("the agent may not bind the launch token")
		}
		token := rolebound.Token(c.LaunchToken, "arn:aws:iam::"+account+":role/fairlead/ins_1/"+stepRole)
		endpoint, _ := awsiam.EndpointOf("eu-central-1", false)
		// proves makes a proof of a role, for the step and the token.
		proves := func(account, role, step, token string) *control.AWSProof {
			creds := sts.AssumeRole("aws", account, role, "AROAEXAMPLEEXAMPLE123", "session")
			proof, err := sign.Proof(p.ctx, credentials.StaticCredentialsProvider{Value: creds}, endpoint, awsiam.Challenge{Nonce: rolebound.Nonce(token), Audience: host, Statement: []byte(step)}, p.Now())
			if err != nil {
				t.Fatal(err)
			}
			return &control.AWSProof{Proof: proof, Audience: host}
		}
		launch := func(token string) control.Launch {
			l, err := p.AuthenticateLaunch(token, c.ID)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		for consequence, proof := range map[string]*control.AWSProof{
			"a thief starts the job without a proof":                           nil,
			"a tool starts the job with the role of its operation":             proves(account, "fairlead-provision-ins_1", "thief", token),
			"a plan's step starts an apply":                                    proves(account, "fairlead-step-read-only-ins_1", "thief", token),
			"a role with the same name in another account starts the job":      proves("999999999999", stepRole, "thief", token),
			"a proof of the job's step serves a thief":                         proves(account, stepRole, "own", token),
			"a proof for the same step of another job serves a thief":          proves(account, stepRole, "thief", rolebound.Token(c.LaunchToken+"x", "arn:aws:iam::"+account+":role/"+stepRole)),
			"a proof without the host of this control plane serves a stranger": {Proof: proves(account, stepRole, "thief", token).Proof},
		} {
			err := p.ProveRole(p.ctx, launch(token).Binding, []byte("thief"), proof)
			if fairlead.CodeOf(err) != fairlead.CodeStepRoleUnproven {
				t.Errorf("%s: %v", consequence, err)
			}
		}
		p.must("prove the step's role", func() error {
			return p.ProveRole(p.ctx, launch(token).Binding, []byte("own"), proves(account, stepRole, "own", token))
		})
		p.must("prove nothing for a token that is bound to no role", func() error { return p.ProveRole(p.ctx, launch(c.LaunchToken).Binding, []byte("own"), nil) })

		// A warm step's token is bound before its job is known, and so is the launch token that it buys.
		ahead := p.ahead(c, 1)
		if len(ahead) != 1 || !ahead[0].Bindable {
			t.Fatalf("the steps to start ahead are %+v, want one whose token may be bound", ahead)
		}
		w := ahead[0]
		w.Token = rolebound.Token(w.Token, "arn:aws:iam::"+account+":role/fairlead/ins_1/"+stepRole)
		p.step(c)
		next := p.claim()
		if _, err := p.await(w, "a-thief"); fairlead.CodeOf(err) != fairlead.CodeStepRoleUnproven {
			t.Errorf("a thief takes the job of a warm step: %v", err)
		}
		h, err := p.AuthenticateWarm(w.Token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.AwaitJob(p.ctx, h, "warm-step", true, 0); err != nil {
			t.Fatal(err)
		}
		got, err := p.await(w, "warm-step")
		if err != nil || got.ID != next.ID || rolebound.Role(got.LaunchToken) == "" {
			t.Fatalf("the warm step gets %+v, %v, want the claim of job %s with a bound token", got, err, next.ID)
		}
		l, err := p.AuthenticateLaunch(got.LaunchToken, got.ID)
		if err != nil || !strings.HasSuffix(l.Role, stepRole) {
			t.Errorf("the launch token of the warm step is for the role %q, %v", l.Role, err)
		}
	})
}
