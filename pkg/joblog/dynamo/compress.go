package dynamo

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/klauspost/compress/zstd"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// The attributes with the bytes of a piece: as they are, in the format zstd (RFC 8878), or in the format DEFLATE (RFC 1951),
// which earlier versions wrote. DynamoDB bills a write by the kilobyte, and the output of a tool shrinks to a fifth or less.
const (
	attrRaw      = "data"
	attrZstd     = "zstd"
	attrDeflated = "flate"
)

// codec packs and unpacks the bytes of pieces. Safe for concurrent use.
type codec struct {
	packer   *zstd.Encoder
	unpacker *zstd.Decoder
}

// newCodec returns a codec. A stronger level takes ten times the time, and pieces cost as many write units.
func newCodec() (codec, error) {
	// The log has a checksum of its own. Pieces are at most joblog.MaxAppend long and mostly below 64 KiB.
	p, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(64<<10))
	if err != nil {
		return codec{}, err
	}
	u, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(joblog.MaxAppend))
	return codec{p, u}, err
}

// setBytes sets the bytes of a piece's item, in the form that is shorter. A piece without bytes gets no attribute.
func (c codec) setBytes(it item, data []byte) {
	if len(data) == 0 {
		return
	}
	if packed := c.packer.EncodeAll(data, nil); len(packed) < len(data) {
		it[attrZstd] = &types.AttributeValueMemberB{Value: packed}
		return
	}
	it[attrRaw] = &types.AttributeValueMemberB{Value: data}
}

// bytesSize returns the number of bytes that the item stores for its piece.
func bytesSize(it item) int {
	for _, name := range []string{attrRaw, attrZstd} {
		if b, ok := it[name].(*types.AttributeValueMemberB); ok {
			return len(b.Value)
		}
	}
	return 0
}

// bytesOf returns the bytes of a piece's item.
func (c codec) bytesOf(it item) ([]byte, error) {
	if b, ok := it[attrRaw].(*types.AttributeValueMemberB); ok {
		return b.Value, nil
	}
	for name, value := range it { // a piece at the end of a chain has no bytes
		if _, ok := value.(*types.AttributeValueMemberB); ok && name != attrZstd && name != attrDeflated {
			return nil, fmt.Errorf("a later version stored a piece of a log in the form %q, which this version cannot read", name)
		}
	}
	var data []byte
	var err error
	if b, ok := it[attrZstd].(*types.AttributeValueMemberB); ok {
		data, err = c.unpacker.DecodeAll(b.Value, nil)
	} else if b, ok := it[attrDeflated].(*types.AttributeValueMemberB); ok {
		data, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b.Value)), joblog.MaxAppend+1))
	}
	if err != nil {
		return nil, fmt.Errorf("unpack a piece of a log: %w", err)
	}
	if len(data) > joblog.MaxAppend {
		return nil, fmt.Errorf("a piece of a log unpacks to more than %d bytes", joblog.MaxAppend)
	}
	return data, nil
}
