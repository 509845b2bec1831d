package agent

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
)

// role is the AWS role of the process, used as the runner's identity. Nothing of the role is on disk.
type role struct {
	provider aws.CredentialsProvider
	endpoint awsiam.Endpoint
	audience string // the host of the control plane, from our configuration
	now      func() time.Time
}

// givenIdentity returns the identity of a runner that does not enrol, and the host of its control
// plane. Other runners get values such as the control plane's keys when they enrol. This runner gets
// them in its configuration, from the customer's template or manifest.
func givenIdentity(cfg config.Runner, with string) (identity, string, error) {
	if cfg.URL == "" || cfg.RunnerID == "" || len(cfg.TrustedKeys) == 0 {
		return identity{}, "", fmt.Errorf("a runner with %s needs FAIRLEAD_URL, FAIRLEAD_RUNNER_ID and FAIRLEAD_TRUSTED_KEYS", with)
	}
	id := identity{V: 1, URL: strings.TrimSuffix(cfg.URL, "/"), Name: cfg.RunnerID, RunnerID: fairlead.RunnerID(cfg.RunnerID)}
	for _, k := range cfg.TrustedKeys {
		pub, err := base64.StdEncoding.DecodeString(strings.TrimSpace(k))
		if err != nil || len(pub) != ed25519.PublicKeySize {
			return identity{}, "", fmt.Errorf("FAIRLEAD_TRUSTED_KEYS: %q is not an Ed25519 public key of %d bytes in base64", k, ed25519.PublicKeySize)
		}
		id.Keys = append(id.Keys, wire.VerificationKey{ID: events.KeyID(pub), PublicKey: pub})
	}
	host, err := awsiam.Audience(id.URL)
	return id, host, err
}

// roleIdentity returns the identity of a runner that authenticates with its AWS role.
func roleIdentity(ctx context.Context, cfg config.Runner, o Options) (identity, error) {
	id, audience, err := givenIdentity(cfg, "an AWS role")
	if err != nil {
		return identity{}, err
	}
	ac, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment, like every program that uses the SDK
	if err != nil {
		return identity{}, fmt.Errorf("find the AWS role of this process: %w", err)
	}
	fips := strings.EqualFold(environment(o.Environ, "AWS_USE_FIPS_ENDPOINT"), "true")
	e, ok := awsiam.EndpointOf(ac.Region, fips)
	if !ok {
		return identity{}, fmt.Errorf("STS has no regional endpoint in %q. Set AWS_REGION, and AWS_USE_FIPS_ENDPOINT only in regions that have one", ac.Region)
	}
	id.role = &role{provider: ac.Credentials, endpoint: e, audience: audience, now: time.Now}
	return id, nil
}

func environment(environ []string, name string) string {
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// prove adds the proof of the identity to the request, whose nonce is set.
func (id identity) prove(ctx context.Context, in *wire.SessionRequest) error {
	if id.federated != nil {
		return id.federated.prove(ctx, id.key, in)
	}
	statement := wire.SessionStatement(in.Nonce, in.RunnerID, in.Instance)
	if id.role == nil {
		in.PublicKey = id.key.Public().(ed25519.PublicKey)
		in.Signature = ed25519.Sign(id.key, statement)
		return nil
	}
	r := id.role
	p, err := sign.Proof(ctx, r.provider, r.endpoint, awsiam.Challenge{Nonce: in.Nonce, Audience: r.audience, Statement: statement}, r.now())
	if err != nil {
		return err
	}
	in.AWSIAM = &wire.AWSIAMProof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}
	return nil
}
