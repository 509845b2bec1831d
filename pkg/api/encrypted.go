package api

import (
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

// readEncrypted returns a value that the customer's side or a person encrypted; nil: none.
func readEncrypted(in *wire.Encrypted) *control.Encrypted {
	if in == nil {
		return nil
	}
	return &control.Encrypted{Bytes: in.Bytes, Type: in.Type, Size: in.Size, Fingerprint: in.Fingerprint}
}

func renderEncrypted(e *control.Encrypted) *wire.Encrypted {
	if e == nil {
		return nil
	}
	return &wire.Encrypted{Bytes: e.Bytes, Type: e.Type, Size: e.Size, Fingerprint: e.Fingerprint}
}

func readAllEncrypted(in map[string]wire.Encrypted) map[string]control.Encrypted {
	out := make(map[string]control.Encrypted, len(in))
	for name, e := range in {
		out[name] = *readEncrypted(&e)
	}
	return out
}

func renderKey(k *control.InstallKey) *wire.InstallKey {
	if k == nil {
		return nil
	}
	return &wire.InstallKey{PublicKey: k.Public.String(), Fingerprint: k.Public.Fingerprint(), Since: k.Since.UTC(), Changed: renderKey(k.Changed)}
}
