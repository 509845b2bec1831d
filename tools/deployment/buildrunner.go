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

// runner is a runner in the CLI's JSON output.
type runner struct {
	ID, Name string
	AWS      *struct {
		RoleARN string `json:"role_arn"`
		RoleID  string `json:"role_id"` // "": no agent has logged in with the role yet
	} `json:"aws"`
}

// ensureRunner creates the build runner in the control plane unless it exists, and
// returns its identifier. The runner trusts the role that the stack has, or will create,
// for the build runner.
func (d *Deployment) ensureRunner(ctx context.Context, s state) (string, error) {
	role := s.outputs["BuildRunnerRoleArn"]
	out, err := d.Run(ctx, d.cli("", "runner", "list", "--json"))
	if err != nil {
		return "", err
	}
	var existing []runner
	if err := json.Unmarshal(out, &existing); err != nil {
		return "", fmt.Errorf("list the runners: %w", err)
	}
	i := slices.IndexFunc(existing, func(r runner) bool { return r.Name == d.BuildRunner })
	if i < 0 {
		return d.createRunner(ctx, role)
	}
	switch r := existing[i]; {
	case r.AWS == nil || r.AWS.RoleARN != role:
		return "", fmt.Errorf("a runner %s exists and does not trust the role %s: choose another name for the build runner", r.Name, role)
	case r.AWS.RoleID != "" && s.builder == "":
		// AWS would create another role with the same name. The runner refuses that role.
		return "", fmt.Errorf("the runner %s trusts the deleted role of an earlier build runner: delete the runner with `fairlead runner delete %s`", r.Name, r.Name)
	default:
		return r.ID, nil
	}
}

// createRunner creates the runner and returns its identifier. The runner keeps states in
// the control plane, because a task loses its disk when it ends.
func (d *Deployment) createRunner(ctx context.Context, role string) (string, error) {
	d.say("Creating the runner %s", d.BuildRunner)
	out, err := d.Run(ctx, d.cli("", "runner", "create", d.BuildRunner, "--aws-role", role, "--set", "runner_configuration.type=local", "--set", "runner_configuration.builds=true", "--set", "state_storage_configuration.type=http", "--json"))
	if err != nil {
		return "", err
	}
	var r runner
	if err := json.Unmarshal(out, &r); err != nil || r.ID == "" {
		return "", errors.Join(fmt.Errorf("create the runner %s: the answer has no identifier", d.BuildRunner), err)
	}
	return r.ID, nil
}

// signingKey returns the public key of the KMS key that signs jobs, in base64. The build
// runner pins it.
func (d *Deployment) signingKey(ctx context.Context, arn string) (string, error) {
	out, err := kms.NewFromConfig(d.Config).GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &arn})
	if err != nil {
		return "", fmt.Errorf("get the public key of %s: %w", arn, err)
	}
	public, err := x509.ParsePKIXPublicKey(out.PublicKey)
	if err != nil {
		return "", fmt.Errorf("parse the public key of %s: %w", arn, err)
	}
	key, ok := public.(ed25519.PublicKey)
	if !ok {
		return "", fmt.Errorf("the key %s has type %T, but jobs are signed with Ed25519", arn, public)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}
