package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/internal/idtoken"
)

// federated is an identity that the agent's platform provides as a token. A request also has the
// signature of a key, which need not be registered. The key ensures that others cannot use a token
// that is valid for more than one request.
type federated struct {
	source   idtoken.Source
	audience string // audience of the service account; "": the source needs no audience
	host     string // of the control plane, from our configuration
}

// federatedIdentity returns the identity of a runner that authenticates with its platform's token.
// The key is kept in the data folder: an agent that restarts before the platform writes the next
// token must present the same key.
func federatedIdentity(cfg config.Runner, o Options) (identity, error) {
	id, host, err := givenIdentity(cfg, "an OIDC token")
	if err != nil {
		return identity{}, err
	}
	fset := flag.NewFlagSet("oidc", flag.ContinueOnError)
	fset.SetOutput(io.Discard)
	var oc config.OIDC
	if err := config.Load(&oc, fset, nil, o.Environ); err != nil {
		return identity{}, err
	}
	source, err := idtoken.Open(oc)
	if err != nil {
		return identity{}, err
	}
	if id.key, err = readKey(cfg.Data); errors.Is(err, fs.ErrNotExist) {
		id.key, err = makeKey(cfg.Data)
	}
	if err != nil {
		return identity{}, err
	}
	id.federated = &federated{source: source, audience: oc.Audience, host: host}
	return id, nil
}

// prove adds the token and the signature of its holder to the request.
func (f *federated) prove(ctx context.Context, key ed25519.PrivateKey, in *wire.SessionRequest) error {
	in.PublicKey = key.Public().(ed25519.PublicKey)
	statement := wire.OIDCStatement(in.Nonce, in.RunnerID, f.host, in.PublicKey, in.Instance)
	audience := f.audience
	if f.source.Chooses() {
		audience = wire.OIDCAudience(audience, wire.OIDCBinding(statement))
	}
	token, err := f.source.Token(ctx, audience)
	if err != nil {
		return fmt.Errorf("get the runner's OIDC token: %w", err)
	}
	in.OIDC = &wire.OIDCProof{Token: token}
	in.Signature = ed25519.Sign(key, wire.OIDCSigned(statement, token))
	return nil
}
