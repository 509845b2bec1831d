package wire

import "encoding/json"

// Routes of the signing keys.
var (
	ListKeys   = Route{"list-keys", "GET", "/v1/keys"}
	RotateKeys = Route{"rotate-keys", "POST", "/v1/keys/rotate"}
	RevokeKey  = Route{"revoke-key", "POST", "/v1/keys/{signing_key}/revoke"}
	PutKeySet  = Route{"put-key-set", "POST", "/v1/key-sets"}
)

// Uses of a signing key.
const (
	KeySigns = "signs" // job specs
	KeyValid = "valid" // signed job specs before, and runners accept them
	KeySpare = "spare" // signs changes of the keys
)

// SigningKey is a key that runners trust.
type SigningKey struct {
	VerificationKey
	Use string `json:"use" enum:"signs,valid,spare" doc:"signs: signs job specs; valid: signed them before, and runners accept them; spare: signs the next change of the keys"`
}

// Keys are the keys that runners trust, in the order of the key set.
type Keys struct {
	Number  int64             `json:"number" doc:"Number of the key set; 0: the keys never changed"`
	Keys    []SigningKey      `json:"keys" nullable:"false"`
	Changes []json.RawMessage `json:"changes" nullable:"false" doc:"DSSE envelopes around the key sets, by number. A runner follows them from the keys that it pinned"`
}

// PutKeySetRequest has a key set that was signed elsewhere.
type PutKeySetRequest struct {
	Envelope json.RawMessage `json:"envelope" doc:"DSSE envelope around the key set"`
}
