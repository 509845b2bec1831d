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
