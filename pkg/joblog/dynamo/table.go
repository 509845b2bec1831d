package dynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// The table has one partition for each job. Sort keys:
//
//	fence              epoch: the highest epoch that was opened
//	s#<epoch>          a stream: id, size, crc, ended, truncated, fenced, moved
//	c#<id>#<offset>    a chunk: bytes of the stream with this id, starting at this offset
//
// An append is one transaction over its stream and its chunks. The condition of the
// transaction is that the stream is unchanged since the read, has not ended and is not
// fenced. Open creates its stream and fences the previous stream in one transaction. So the
// size and checksum of a stream always match its chunks, and a fenced stream accepts no
// append. Each Open after a Drop uses a new id, so bytes that an interrupted Drop left are
// not part of the new stream.
const (
	partitionKey = "pk"
	sortKey      = "sk"
	fenceSort    = "fence"
)

// maxChunk is the maximum number of bytes in one chunk. DynamoDB accepts items of up to
// 400 KB, including the names of the attributes. The largest append has four chunks.
const maxChunk = 256 << 10

// maxBatch is DynamoDB's limit of deletes in one request.
const maxBatch = 25

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
func boolean(b bool) types.AttributeValue  { return &types.AttributeValueMemberBOOL{Value: b} }
func streamSort(epoch int64) string        { return fmt.Sprintf("s#%019d", epoch) }
func chunkSort(id string, at int64) string { return fmt.Sprintf("c#%s#%010d", id, at) }

func (l *Index) key(job, sort string) item {
	return item{partitionKey: text(l.options.Prefix + job), sortKey: text(sort)}
}

// stream is the item of a stream.
type stream struct {
	id     string
	info   joblog.Info
	fenced bool
	moved  bool // another store has its bytes
}

// openWrites returns the writes that create the stream and fence the previous stream, whose
// epoch is fence. If fence is 0, there is no previous stream.
func (l *Index) openWrites(s joblog.Stream, fence int64) []types.TransactWriteItem {
	newFence, newStream := l.key(s.Job, fenceSort), l.key(s.Job, streamSort(s.Epoch))
	newFence["epoch"] = number(s.Epoch)
	newStream["id"] = text(rand.Text())
	newStream["epoch"], newStream["size"], newStream["crc"] = number(s.Epoch), number(0), number(0)
	newStream["ended"], newStream["truncated"], newStream["fenced"] = boolean(false), boolean(false), boolean(false)
	first := &types.Put{TableName: &l.options.Table, Item: newFence, ConditionExpression: aws.String("attribute_not_exists(epoch)")}
	writes := []types.TransactWriteItem{{Put: first}, {Put: &types.Put{TableName: &l.options.Table, Item: newStream}}}
	if fence == 0 {
		return writes
	}
	first.ConditionExpression = aws.String("epoch = :fence")
	first.ExpressionAttributeValues = item{":fence": number(fence)}
	return append(writes, types.TransactWriteItem{Update: &types.Update{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(fence)),
		UpdateExpression:          aws.String("SET fenced = :yes"),
		ConditionExpression:       aws.String("attribute_exists(id)"),
		ExpressionAttributeValues: item{":yes": boolean(true)},
	}})
}

// appendWrites returns the writes that add data to the end of the stream.
func (l *Index) appendWrites(st stream, data []byte) []types.TransactWriteItem {
	s, at := st.info.Stream, st.info.Size
	writes := []types.TransactWriteItem{{Update: &types.Update{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)),
		UpdateExpression:         aws.String("SET #size = :new, crc = :crc"),
		ConditionExpression:      aws.String("id = :id AND #size = :old AND ended = :no AND fenced = :no"),
		ExpressionAttributeNames: map[string]string{"#size": "size"},
		ExpressionAttributeValues: item{
			":new": number(at + int64(len(data))), ":crc": number(int64(checksum(st.info.CRC32, data))),
			":id": text(st.id), ":old": number(at), ":no": boolean(false),
		},
	}}}
	for rest := data; len(rest) > 0; {
		n := min(len(rest), maxChunk)
		it := l.key(s.Job, chunkSort(st.id, at))
		it["data"] = &types.AttributeValueMemberB{Value: rest[:n]}
		writes = append(writes, types.TransactWriteItem{Put: &types.Put{TableName: &l.options.Table, Item: it}})
		at, rest = at+int64(n), rest[n:]
	}
	return writes
}

func (l *Index) endUpdate(s joblog.Stream, truncated bool) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)),
		UpdateExpression:          aws.String("SET ended = :yes, truncated = :t"),
		ConditionExpression:       aws.String("ended = :no"),
		ExpressionAttributeValues: item{":yes": boolean(true), ":no": boolean(false), ":t": boolean(truncated)},
	}
}

func (l *Index) moveUpdate(st stream, info joblog.Info) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName: &l.options.Table, Key: l.key(info.Stream.Job, streamSort(info.Stream.Epoch)),
		UpdateExpression:         aws.String("SET moved = :yes, #size = :size, crc = :crc, truncated = :t"),
		ConditionExpression:      aws.String("id = :id AND ended = :yes AND attribute_not_exists(moved)"),
		ExpressionAttributeNames: map[string]string{"#size": "size"},
		ExpressionAttributeValues: item{
			":id": text(st.id), ":yes": boolean(true), ":size": number(info.Size), ":crc": number(int64(info.CRC32)), ":t": boolean(info.Truncated),
		},
	}
}

// transact applies all writes or none of them. It returns errRefused if the condition of a
// write did not hold, another transaction used the same items, or DynamoDB throttled the
// transaction.
func (l *Index) transact(ctx context.Context, writes ...types.TransactWriteItem) error {
	_, err := l.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: writes})
	if c, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		for _, r := range c.CancellationReasons {
			switch aws.ToString(r.Code) {
			case "ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
				return errRefused
			}
		}
	}
	return err
}

// isRefused reports whether err means that the condition of a single write did not hold.
func isRefused(err error) bool {
	_, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	return ok
}

// fence returns the highest epoch of the job that was opened, or 0 if no epoch was opened.
func (l *Index) fence(ctx context.Context, job string) (int64, error) {
	out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &l.options.Table, Key: l.key(job, fenceSort), ConsistentRead: aws.Bool(true),
	})
	if err != nil || len(out.Item) == 0 {
		return 0, err
	}
	return integer(out.Item, "epoch")
}

// stream returns the stream, or joblog.ErrNotFound.
func (l *Index) stream(ctx context.Context, s joblog.Stream) (stream, error) {
	out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return stream{}, err
	}
	if len(out.Item) == 0 {
		return stream{}, joblog.ErrNotFound
	}
	return readStream(s.Job, out.Item)
}

func readStream(job string, it item) (stream, error) {
	var errs []error
	whole := func(name string) int64 { n, err := integer(it, name); errs = append(errs, err); return n }
	truth := func(name string) bool { b, ok := it[name].(*types.AttributeValueMemberBOOL); return ok && b.Value }
	st := stream{
		info: joblog.Info{
			Stream: joblog.Stream{Job: job, Epoch: whole("epoch")},
			Size:   whole("size"), CRC32: uint32(whole("crc")), Ended: truth("ended"), Truncated: truth("truncated"),
		},
		fenced: truth("fenced"), moved: truth("moved"),
	}
	id, ok := it["id"].(*types.AttributeValueMemberS)
	if !ok {
		return stream{}, fmt.Errorf("stream of job %s has no id", job)
	}
	st.id = id.Value
	return st, errors.Join(errs...)
}

func integer(it item, name string) (int64, error) {
	n, ok := it[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, fmt.Errorf("attribute %s of a log is not a number", name)
	}
	return strconv.ParseInt(n.Value, 10, 64)
}

// query calls each for the items of the job's partition whose sort keys are between from and
// to, inclusive. It stops when each returns false or an error.
func (l *Index) query(ctx context.Context, job, from, to string, backward bool, each func(item) (bool, error)) error {
	in := &dynamodb.QueryInput{
		TableName: &l.options.Table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(!backward),
		KeyConditionExpression:    aws.String("pk = :job AND sk BETWEEN :from AND :to"),
		ExpressionAttributeValues: item{":job": text(l.options.Prefix + job), ":from": text(from), ":to": text(to)},
	}
	if backward {
		in.Limit = aws.Int32(1)
	}
	for pages := dynamodb.NewQueryPaginator(l.client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			if more, err := each(it); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// bytes returns the bytes from offset up to, but not including, end. If a byte is not
// stored, it returns an error.
func (l *Index) bytes(ctx context.Context, st stream, offset, end int64) ([]byte, error) {
	job := st.info.Stream.Job
	first := chunkSort(st.id, offset)
	// The chunk that contains the byte at offset may begin before offset.
	err := l.query(ctx, job, chunkSort(st.id, 0), first, true, func(it item) (bool, error) {
		sk, ok := it[sortKey].(*types.AttributeValueMemberS)
		if ok {
			first = sk.Value
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, end-offset)
	err = l.query(ctx, job, first, chunkSort(st.id, end-1), false, func(it item) (bool, error) {
		sk, okSort := it[sortKey].(*types.AttributeValueMemberS)
		b, okData := it["data"].(*types.AttributeValueMemberB)
		if !okSort || !okData {
			return false, errors.New("a chunk has no sort key or no bytes")
		}
		start, err := strconv.ParseInt(sk.Value[len(chunkSort(st.id, 0))-10:], 10, 64)
		if err != nil {
			return false, err
		}
		at := offset + int64(len(data))
		if at < start || at-start >= int64(len(b.Value)) {
			return false, errors.New("the stored chunks have a gap")
		}
		data = append(data, b.Value[at-start:min(end-start, int64(len(b.Value)))]...)
		return offset+int64(len(data)) < end, nil
	})
	if err == nil && int64(len(data)) != end-offset {
		err = errors.New("the stored chunks have a gap")
	}
	return data, err
}

// streams returns a job's streams in the order of their epochs.
func (l *Index) streams(ctx context.Context, job string) (all []stream, err error) {
	err = l.query(ctx, job, streamSort(0), "s$", false, func(it item) (bool, error) { // $ sorts after #
		st, err := readStream(job, it)
		all = append(all, st)
		return true, err
	})
	return all, err
}

// remove removes the fence, the streams and every chunk of the job.
func (l *Index) remove(ctx context.Context, job string, streams []stream) error {
	if _, err := l.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &l.options.Table, Key: l.key(job, fenceSort)}); err != nil {
		return err
	}
	for _, st := range streams {
		_, err := l.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &l.options.Table, Key: l.key(job, streamSort(st.info.Stream.Epoch)),
			// Do not delete a stream that was opened in the meantime: it has another id.
			ConditionExpression: aws.String("id = :id"), ExpressionAttributeValues: item{":id": text(st.id)},
		})
		if err != nil && !isRefused(err) {
			return err
		}
	}
	live, err := l.streams(ctx, job)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, st := range live {
		kept[st.id] = true
	}
	return l.removeChunks(ctx, job, func(id string) bool { return !kept[id] })
}

// removeChunks removes the chunks of the job for whose stream id the function of returns
// true.
func (l *Index) removeChunks(ctx context.Context, job string, of func(id string) bool) error {
	var batch []types.WriteRequest
	err := l.query(ctx, job, "c#", "c$", false, func(it item) (bool, error) {
		sk, ok := it[sortKey].(*types.AttributeValueMemberS)
		if !ok || !of(sk.Value[len("c#"):len(sk.Value)-len("#0000000000")]) {
			return true, nil
		}
		batch = append(batch, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: l.key(job, sk.Value)}})
		if len(batch) < maxBatch {
			return true, nil
		}
		defer func() { batch = nil }()
		return true, l.removeBatch(ctx, batch)
	})
	if err != nil || len(batch) == 0 {
		return err
	}
	return l.removeBatch(ctx, batch)
}

func (l *Index) removeBatch(ctx context.Context, batch []types.WriteRequest) error {
	for attempt := 0; len(batch) > 0; attempt++ {
		if attempt == maxAttempts {
			return errRefused
		}
		out, err := l.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{l.options.Table: batch},
		})
		if err != nil {
			return err
		}
		if batch = out.UnprocessedItems[l.options.Table]; len(batch) > 0 {
			if err := pause(ctx, attempt); err != nil {
				return err
			}
		}
	}
	return nil
}
