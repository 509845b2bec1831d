// Package modeparameter reads the customer's mode of an agent from a parameter of the SSM Parameter
// Store in the customer's account. The customer changes the parameter; neither the vendor's control
// plane nor a restart of the agent is needed.
package modeparameter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/modefile"
)

// attemptTimeout is the timeout of one request. SSM normally responds within 50 ms.
const attemptTimeout = 3 * time.Second

// Parameter is a parameter with a mode. Safe for concurrent use.
type Parameter struct {
	client *ssm.Client
	name   string
}

// New returns the parameter with this name in cfg's region. It sends no request.
func New(cfg aws.Config, name string) *Parameter {
	cfg.RetryMaxAttempts = 1 // the agent reads the parameter again a few seconds later
	return &Parameter{client: ssm.NewFromConfig(cfg), name: name}
}

// Unread returns the mode that applies before the parameter was read for the first time. The customer
// may have paused the runner, so the agent starts no jobs.
func (p *Parameter) Unread() fairlead.CustomerMode {
	return fairlead.CustomerMode{Mode: fairlead.ModePaused, Reason: "the agent has not read the SSM parameter " + p.name + " yet"}
}

// Read returns the mode in the parameter. The parameter's value is a mode, which a colon and a reason
// may follow: "paused: month-end closing". If the parameter does not exist or has another value, Read
// returns ModePaused and the error. If SSM gives no answer about the parameter, Read returns an error
// and the zero mode, and the last mode continues to apply.
func (p *Parameter) Read(ctx context.Context) (fairlead.CustomerMode, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	out, err := p.client.GetParameter(ctx, &ssm.GetParameterInput{Name: &p.name})
	if _, missing := errors.AsType[*types.ParameterNotFound](err); missing {
		return p.invalid("does not exist"), fmt.Errorf("read the customer's mode: the SSM parameter %s does not exist", p.name)
	}
	if err != nil {
		return fairlead.CustomerMode{}, fmt.Errorf("read the customer's mode in the SSM parameter %s: %w", p.name, err)
	}
	if out.Parameter == nil {
		return fairlead.CustomerMode{}, fmt.Errorf("read the customer's mode: the response of SSM has no parameter %s", p.name)
	}
	mode, reason, _ := strings.Cut(aws.ToString(out.Parameter.Value), ":")
	m, err := fairlead.ParseRunnerMode(strings.TrimSpace(mode))
	if err != nil {
		return p.invalid("has no valid mode"), fmt.Errorf("read the customer's mode in the SSM parameter %s: %w", p.name, err)
	}
	return fairlead.CustomerMode{Mode: m, Reason: modefile.Line(reason), Since: aws.ToTime(out.Parameter.LastModifiedDate)}, nil
}

func (p *Parameter) invalid(how string) fairlead.CustomerMode {
	return fairlead.CustomerMode{Mode: fairlead.ModePaused, Reason: "the SSM parameter " + p.name + " " + how}
}
