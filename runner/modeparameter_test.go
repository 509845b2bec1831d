package main

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
)

// modeParameter is the parameter with the mode of a customer's stack, on a server that is compatible with SSM.
type modeParameter struct {
	t      testing.TB
	name   string
	client *ssm.Client
	env    []string // of an agent that reads the parameter
}

func newModeParameter(t testing.TB) modeParameter {
	t.Helper()
	endpoint, name := others.Endpoint(t), "/fairlead/"+rand.Text()+"/mode"
	return modeParameter{t: t, name: name,
		client: ssm.NewFromConfig(aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIACUSTOMER", "customer", "")}),
		env: []string{"FAIRLEAD_MODE_PARAMETER=" + name, "AWS_ENDPOINT_URL_SSM=" + endpoint, "AWS_REGION=eu-central-1",
			"AWS_ACCESS_KEY_ID=AKIARUNNER", "AWS_SECRET_ACCESS_KEY=runner"}}
}

func (p modeParameter) put(value string) {
	p.t.Helper()
	if _, err := p.client.PutParameter(p.t.Context(), &ssm.PutParameterInput{Name: &p.name, Value: &value, Type: types.ParameterTypeString, Overwrite: aws.Bool(true)}); err != nil {
		p.t.Fatal(err)
	}
}

// The customer changes the parameter of the stack. The agent applies each change by itself: it needs
// neither a restart nor the vendor. Without a readable parameter it starts no jobs. A job that runs
// when the customer pauses the agent continues to its end.
func TestModeParameterPausesARunningAgent(t *testing.T) {
	t.Parallel()
	p := newModeParameter(t)
	put, name := p.put, p.name
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	gate := filepath.Join(t.TempDir(), "gate")
	a := startAgent(t, s, "", append(p.env, "FAIRLEAD_TOFU="+tool(t), "FAIRLEAD_ENROLMENT_TOKEN="+s.EnrolmentToken())...)
	because := func(reason string) {
		t.Helper()
		s.Until("the heartbeat reports paused because "+reason, func() bool {
			b := s.LastBeat()
			return b.Customer != nil && b.Customer.Mode == "paused" && strings.Contains(b.Customer.Reason, reason)
		})
	}
	because("the SSM parameter " + name + " does not exist")
	put("off")
	because("the SSM parameter " + name + " has no valid mode")
	if n := s.Asked(wire.ClaimJob); n > 0 {
		t.Errorf("without a valid mode the agent sent %d claims", n)
	}
	put("enabled")
	reported(s, "")
	apply := applying(t, s, module(`echo working; while ! test -e `+gate+`; do sleep 0.05; done`), nil)
	put("paused: month-end closing")
	because("month-end closing")
	// The control plane may not have noticed yet that the agent closed its poll.
	s.Until("no claim is open", func() bool { return s.Open(wire.ClaimJob) == 0 })
	waits := s.Queue(checkSpec())
	claims := s.Asked(wire.ClaimJob)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.UntilFinished(apply); j.Finish.Outcome != "succeeded" {
		t.Errorf("the apply of the paused agent finished as %+v", *j.Finish)
	}
	if n := s.Asked(wire.ClaimJob) - claims; n > 0 || s.Job(waits).Claimed {
		t.Errorf("the paused agent sent %d claims, claimed: %t", n, s.Job(waits).Claimed)
	}
	put("enabled")
	s.UntilFinished(waits)
	select {
	case <-a.done:
		t.Error("the agent has ended")
	default:
	}
}
