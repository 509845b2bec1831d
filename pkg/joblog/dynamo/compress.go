package dynamo

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// The attributes with the bytes of a piece: as they are, or in the format DEFLATE (RFC 1951). DynamoDB bills a write by
// the kilobyte, and the output of a tool shrinks to a fifth or less.
const (
	attrRaw      = "data"
	attrDeflated = "flate"
)

// setBytes sets the bytes of a piece's item, in the form that is shorter. A piece without bytes gets no attribute.
func setBytes(it item, data []byte) {
	if len(data) == 0 {
		return
	}
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.BestCompression)
	if err == nil {
		_, err = z.Write(data)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil || b.Len() >= len(data) { // a bytes.Buffer returns no error, so the data does not shrink
		it[attrRaw] = &types.AttributeValueMemberB{Value: data}
		return
	}
	it[attrDeflated] = &types.AttributeValueMemberB{Value: b.Bytes()}
}

// bytesSize returns the number of bytes that the item stores for its piece.
func bytesSize(it item) int {
	for _, name := range []string{attrRaw, attrDeflated} {
		if b, ok := it[name].(*types.AttributeValueMemberB); ok {
			return len(b.Value)
		}
	}
	return 0
}

// bytesOf returns the bytes of a piece's item.
func bytesOf(it item) ([]byte, error) {
	if b, ok := it[attrRaw].(*types.AttributeValueMemberB); ok {
		return b.Value, nil
	}
	b, ok := it[attrDeflated].(*types.AttributeValueMemberB)
	if !ok {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b.Value)), joblog.MaxAppend+1))
	if err != nil {
		return nil, fmt.Errorf("unpack a piece of a log: %w", err)
	}
	if len(data) > joblog.MaxAppend {
		return nil, fmt.Errorf("a piece of a log unpacks to more than %d bytes", joblog.MaxAppend)
	}
	return data, nil
}
