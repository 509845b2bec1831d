package deployment

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/kms"
)

// runner is what the CLI says of one.
type runner struct {
	ID, Name string
	AWS      *struct {
		RoleARN string `json:"role_arn"`
		RoleID  string `json:"role_id"` // "": no agent has proved it yet
	} `json:"aws"`
}

// makeRunner makes the runner that the build runner is, unless it is there, and
// returns its identifier. It trusts the role that the stack has for it, or is
// about to have.
func (d *Deployment) makeRunner(ctx context.Context, s state) (string, error) {
	role := s.outputs["BuildRunnerRoleArn"]
	out, err := d.Run(ctx, d.cli("", "runner", "list", "--json"))
	if err != nil {
		return "", err
	}
	var known []runner
	if err := json.Unmarshal(out, &known); err != nil {
		return "", fmt.Errorf("list the runners: %w", err)
	}
	i := slices.IndexFunc(known, func(r runner) bool { return r.Name == d.BuildRunner })
	if i < 0 {
		return d.createRunner(ctx, role)
	}
	switch r := known[i]; {
	case r.AWS == nil || r.AWS.RoleARN != role:
		return "", fmt.Errorf("the runner %s is there and has not the role %s: give the build runner another name", r.Name, role)
	case r.AWS.RoleID != "" && s.builder == "":
		// AWS would make another role under the same name, which the runner refuses.
		return "", fmt.Errorf("the runner %s trusts a role that went with an earlier build runner: delete it, by `fairlead runner delete %s`", r.Name, r.Name)
	default:
		return r.ID, nil
	}
}

// createRunner makes the runner. The disk of a task goes with it, so states are
// kept in the control plane.
func (d *Deployment) createRunner(ctx context.Context, role string) (string, error) {
	d.say("Making the runner %s", d.BuildRunner)
	out, err := d.Run(ctx, d.cli("", "runner", "create", d.BuildRunner, "--aws-role", role, "--storage", "http", "--json"))
	if err != nil {
		return "", err
	}
	var made runner
	if err := json.Unmarshal(out, &made); err != nil || made.ID == "" {
		return "", errors.Join(fmt.Errorf("make the runner %s: the answer names none", d.BuildRunner), err)
	}
	return made.ID, nil
}

// signingKey returns the public half of the key that signs jobs, in base64, as
// KMS has it: the build runner pins it.
func (d *Deployment) signingKey(ctx context.Context, arn string) (string, error) {
	out, err := kms.NewFromConfig(d.Config).GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &arn})
	if err != nil {
		return "", fmt.Errorf("ask for the public half of the key %s: %w", arn, err)
	}
	public, err := x509.ParsePKIXPublicKey(out.PublicKey)
	if err != nil {
		return "", fmt.Errorf("read the public half of the key %s: %w", arn, err)
	}
	key, ok := public.(ed25519.PublicKey)
	if !ok {
		return "", fmt.Errorf("the key %s is of type %T, and jobs are signed with Ed25519", arn, public)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}
