package api

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// KeyPath names a signing key.
type KeyPath struct {
	Key string `path:"signing_key" pattern:"^[0-9a-f]{16}$" doc:"Identifier of the key"`
}

func (s *server) keyRoutes(c *control.Control) {
	register(s, op{Route: wire.ListKeys, auth: apiToken, may: onShared(access.View), tag: "Keys", summary: "List the keys that sign job specs, and the signed changes of them",
		problems: codes{fairlead.CodeRoleMissing, fairlead.CodeSigningKeyUnusable}},
		func(ctx context.Context, _ *struct{}) (*body[wire.Keys], error) {
			signing, err := c.Signing(ctx)
			return answer(renderKeys(signing), err)
		})
	register(s, op{Route: wire.RotateKeys, auth: apiToken, may: onShared(access.Operate), tag: "Keys", summary: "Make a new key that signs job specs",
		doc:      "The key that signed until now remains valid until it is revoked. Runners follow at their next job.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeKeysElsewhere, fairlead.CodeKeysOverlap, fairlead.CodeKeySetRefused, fairlead.CodeSigningKeyUnusable}},
		func(ctx context.Context, _ *struct{}) (*body[wire.Keys], error) {
			signing, err := c.RotateKeys(ctx, callerOf(ctx).who)
			return answer(renderKeys(signing), err)
		})
	register(s, op{Route: wire.RevokeKey, auth: apiToken, may: onShared(access.Operate), tag: "Keys", summary: "Remove a key from those that runners trust",
		doc:      "A new key takes its place, unless it only signed before.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeKeyNotFound, fairlead.CodeKeysElsewhere, fairlead.CodeKeySetRefused, fairlead.CodeSigningKeyUnusable}},
		func(ctx context.Context, in *KeyPath) (*body[wire.Keys], error) {
			signing, err := c.RevokeKey(ctx, callerOf(ctx).who, in.Key)
			return answer(renderKeys(signing), err)
		})
	type put struct {
		Body wire.PutKeySetRequest
	}
	register(s, op{Route: wire.PutKeySet, auth: apiToken, may: onShared(access.Operate), tag: "Keys", summary: "Put a change of the keys that the spare key signed elsewhere", status: http.StatusCreated,
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeKeySetRefused, fairlead.CodeSigningKeyUnusable}},
		func(ctx context.Context, in *put) (*body[wire.Keys], error) {
			signing, err := c.PutKeySet(ctx, callerOf(ctx).who, in.Body.Envelope)
			return answer(renderKeys(signing), err)
		})
}

func renderKeys(s control.Signing) wire.Keys {
	out := wire.Keys{Number: s.Set.Number, Keys: []wire.SigningKey{}, Changes: []json.RawMessage{}}
	for i, k := range s.Set.Keys {
		use := wire.KeyValid
		switch {
		case s.Signer != nil && k.ID() == events.KeyID(s.Signer.Public()):
			use = wire.KeySigns
		case i > 0 && i == len(s.Set.Keys)-1:
			use = wire.KeySpare
		}
		out.Keys = append(out.Keys, wire.SigningKey{VerificationKey: wire.VerificationKey{ID: k.ID(), PublicKey: ed25519.PublicKey(k)}, Use: use})
	}
	out.Changes = append(out.Changes, rawEach(s.Chain)...)
	return out
}

func verificationKeys(keys []events.Key) []wire.VerificationKey {
	out := []wire.VerificationKey{}
	for _, k := range keys {
		out = append(out, wire.VerificationKey{ID: k.ID(), PublicKey: ed25519.PublicKey(k)})
	}
	return out
}
