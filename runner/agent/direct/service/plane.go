// Package service runs the agents of direct launch beside a serverless control plane. It asks one
// function of the control plane for the runners and their configurations, by the AWS role of the
// process. The role can invoke no other function, and it can neither read the control plane's table
// nor use its keys.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/fairlead/fairlead/events"
)

// callTimeout bounds one invocation. The function needs less than a second, also at its cold start.
const callTimeout = 30 * time.Second

// Plane is a serverless control plane. It implements direct.Plane. Safe for concurrent use.
type Plane struct {
	url, function string
	client        *lambda.Client
}

// New returns the control plane at the URL. function is the name or ARN of its function `direct`.
func New(cfg aws.Config, url, function string) *Plane {
	return &Plane{url: url, function: function, client: lambda.NewFromConfig(cfg)}
}

// URL implements direct.Plane.
func (p *Plane) URL() string { return p.url }

// Transport implements direct.Plane.
func (p *Plane) Transport() http.RoundTripper { return nil }

// DirectRunners implements direct.Plane.
func (p *Plane) DirectRunners(ctx context.Context) (map[string]string, error) {
	out, err := p.ask(ctx, events.DirectRequest{Runners: true})
	if err != nil {
		return nil, fmt.Errorf("list the runners of direct launch: %w", err)
	}
	return out.Runners, nil
}

// DirectConfiguration implements direct.Plane.
func (p *Plane) DirectConfiguration(ctx context.Context, id string) (string, json.RawMessage, error) {
	out, err := p.ask(ctx, events.DirectRequest{Configuration: id})
	if err != nil {
		return "", nil, fmt.Errorf("get the configuration of runner %s: %w", id, err)
	}
	return out.Revision, out.Runner, nil
}

// DirectEnrolment implements direct.Plane.
func (p *Plane) DirectEnrolment(ctx context.Context, id string) (string, error) {
	out, err := p.ask(ctx, events.DirectRequest{Enrolment: id})
	if err != nil {
		return "", fmt.Errorf("enrol an agent of runner %s: %w", id, err)
	}
	return out.Token, nil
}

// ask invokes the function. The SDK repeats an invocation that Lambda throttles.
func (p *Plane) ask(ctx context.Context, in events.DirectRequest) (out events.DirectAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	payload, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	answer, err := p.client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &p.function, Payload: payload})
	if err != nil {
		return out, err
	}
	if answer.FunctionError != nil {
		var failed struct {
			Message string `json:"errorMessage"`
		}
		_ = json.Unmarshal(answer.Payload, &failed) // without a message, the error below is all that is known
		return out, fmt.Errorf("the function %s failed: %s", p.function, failed.Message)
	}
	// The error of json quotes no part of the answer, which can contain a secret.
	if json.Unmarshal(answer.Payload, &out) != nil {
		return out, errors.New("the function " + p.function + " gave an answer that is not a DirectAnswer")
	}
	return out, nil
}
