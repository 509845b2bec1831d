package events

import (
	"context"
	"fmt"
)

// SignMessage returns the ID of the key and its plain Ed25519 signature of a message of DSSE (the PAE of a payload) with at most
// 4,096 bytes. The payload type in the message keeps it apart from specs and statements.
func (s *Signer) SignMessage(ctx context.Context, message []byte) (key string, signature []byte, err error) {
	if len(message) > maxMessage {
		return "", nil, fmt.Errorf("sign a message: it has %d bytes, and a key service signs %d", len(message), maxMessage)
	}
	k := s.key
	k.whole = true
	signature, err = k.Sign(ctx, message)
	if err != nil {
		return "", nil, fmt.Errorf("sign a message: %w", err)
	}
	return KeyID(k.pub), signature, nil
}
