package dynamo

import (
	"bytes"
	"compress/flate"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// An update leaves the pieces that the earlier version stored.
func TestPiecesOfEarlierVersionsAreRead(t *testing.T) {
	data := []byte(strings.Repeat("module.network: Creating...\n", 20))
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.bytesOf(item{"flate": &types.AttributeValueMemberB{Value: b.Bytes()}}); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%q, %v", got, err)
	}
}

// A function of this version may read a piece that a later one stored. It must not take the piece as lost.
func TestPieceOfALaterFormIsAnError(t *testing.T) {
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.bytesOf(item{"brotli": &types.AttributeValueMemberB{Value: []byte("x")}}); err == nil || !strings.Contains(err.Error(), "later version") {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := c.bytesOf(item{"next": number(0)}); err != nil || len(got) > 0 {
		t.Errorf("a piece at the end of a chain is %q, %v", got, err)
	}
}

func TestPieceUnpacksToALimit(t *testing.T) {
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{joblog.MaxAppend, joblog.MaxAppend + 1, 100 * joblog.MaxAppend} {
		it := item{}
		c.setBytes(it, make([]byte, size))
		if got, err := c.bytesOf(it); (err == nil) != (size <= joblog.MaxAppend) {
			t.Errorf("a piece of %d bytes unpacks to %d bytes, %v", size, len(got), err)
		}
	}
	if _, err := c.bytesOf(item{attrZstd: &types.AttributeValueMemberB{Value: []byte("no frame")}}); err == nil {
		t.Error("bytes that are no frame unpack without an error")
	}
}
