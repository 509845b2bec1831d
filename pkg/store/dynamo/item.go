package dynamo

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

type attributes = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func keyOf(k engine.Key) attributes {
	return attributes{AttrPartition: text(k.Partition), AttrSort: text(k.Sort)}
}

// encode returns all attributes of an item. If the item has no key in an index, it has no
// attributes for this index, so DynamoDB does not put the item into the index.
func encode(it *engine.Item, version int64, token string) attributes {
	a := keyOf(it.Key)
	a[AttrVersion] = number(version)
	for name, v := range content(it, token) {
		a[name] = v
	}
	return a
}

// content returns the attributes other than the key and the version.
func content(it *engine.Item, token string) attributes {
	body := it.Body
	if body == nil {
		body = []byte{} // the SDK would send nil as null
	}
	a := attributes{
		AttrToken: text(token),
		AttrBody:  &types.AttributeValueMemberB{Value: body},
	}
	if it.List != nil {
		a[AttrListPartition], a[AttrListSort] = text(it.List.Partition), text(it.List.Sort)
	}
	if it.Due != nil {
		a[AttrDuePartition], a[AttrDueSort] = text(it.Due.Partition), text(it.Due.Sort)
	}
	if s := engine.ExpirySeconds(it.Expires); s != 0 {
		a[AttrExpires] = number(s)
	}
	if len(it.Note) > 0 {
		a[AttrNote] = &types.AttributeValueMemberB{Value: it.Note}
	}
	return a
}

// optional returns the names of the attributes that content may omit.
func optional() []string {
	return []string{AttrListPartition, AttrListSort, AttrDuePartition, AttrDueSort, AttrExpires, AttrNote}
}

// decode is the inverse of encode. It fails on an item that this package did not write.
func decode(a attributes) (engine.Item, error) {
	d := decoder{a: a}
	it := engine.Item{
		Key:     d.key(),
		Version: d.number(AttrVersion),
		Token:   d.text(AttrToken),
		Body:    d.binary(AttrBody),
	}
	it.List = d.place(AttrListPartition, AttrListSort)
	it.Due = d.place(AttrDuePartition, AttrDueSort)
	if _, ok := a[AttrExpires]; ok {
		it.Expires = engine.ExpiryTime(d.number(AttrExpires))
	}
	if d.err != nil {
		return engine.Item{}, fmt.Errorf("decode table item %s: %w", it.Key, d.err)
	}
	return it, nil
}

// decoder keeps the first error, so that decode needs no check for each attribute.
type decoder struct {
	a   attributes
	err error
}

func (d *decoder) miss(name string) {
	if d.err == nil {
		d.err = fmt.Errorf("attribute %q is missing or has another type", name)
	}
}

// key returns the key in the table. Every item and every index entry has this key.
func (d *decoder) key() engine.Key {
	return engine.Key{Partition: d.text(AttrPartition), Sort: d.text(AttrSort)}
}

func (d *decoder) text(name string) string {
	v, ok := d.a[name].(*types.AttributeValueMemberS)
	if !ok {
		d.miss(name)
		return ""
	}
	return v.Value
}

func (d *decoder) binary(name string) []byte {
	v, ok := d.a[name].(*types.AttributeValueMemberB)
	if !ok {
		d.miss(name)
		return nil
	}
	return v.Value
}

func (d *decoder) number(name string) int64 {
	v, ok := d.a[name].(*types.AttributeValueMemberN)
	if !ok {
		d.miss(name)
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		d.miss(name)
	}
	return n
}

func (d *decoder) place(partition, sort string) *engine.Key {
	if _, ok := d.a[partition]; !ok {
		return nil
	}
	return &engine.Key{Partition: d.text(partition), Sort: d.text(sort)}
}
