package dynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// The table has one partition for each job. Sort keys:
//
//	fence              epoch: the highest epoch that was opened
//	s#<epoch>          a stream: id, ended, truncated, cut, fenced, moved, followed; size and crc when it is closed
//	c#<id>#<offset>    a piece: bytes of the stream with this id, starting at this offset; next, crc, expires
//
// A partition budget#<runner>, whose name no job can have, has the item budget: left, at (nanoseconds since 1970), expires.
// DynamoDB removes it when the budget is whole again.
//
// The pieces of a stream are a chain. Each piece has the offset after its bytes (next) and the checksum of the stream up
// to next (crc), and the key of the next piece is next. A piece is only put where no item is. So of two writers at one
// offset one wins, and an append is one conditional write: half the price of a transaction.
//
// To end or fence a stream, one transaction puts a piece without bytes at the end of its chain and notes size and checksum
// in the stream's item. The piece occupies the key that every append would need. So a closed stream accepts no append, also
// from a writer that has read the stream before. Each Open after a Drop uses a new id, so bytes that an interrupted Drop
// left are not part of the new stream.
//
// DynamoDB removes pieces some days after their append (AttrExpires), which costs nothing; a delete costs as much as a
// write. No reader depends on the time of the removal: after Move, no reader reads the pieces.
const (
	partitionKey = "pk"
	sortKey      = "sk"
	fenceSort    = "fence"
	piecesFrom   = "c#" // the sort keys of all pieces begin so
)

// AttrExpires is the attribute with a piece's time to live, in seconds since 1970.
const AttrExpires = "expires"

// maxPiece is the maximum number of stored bytes in one piece. DynamoDB accepts items of up to 400 KB, including the names
// of the attributes. The largest append that cannot be compressed has four pieces.
const maxPiece = 256 << 10

// maxBatch is DynamoDB's limit of deletes in one request.
const maxBatch = 25

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
func boolean(b bool) types.AttributeValue  { return &types.AttributeValueMemberBOOL{Value: b} }
func streamSort(epoch int64) string        { return fmt.Sprintf("s#%019d", epoch) }
func piecesOf(id string) string            { return piecesFrom + id + "#" }
func pieceSort(id string, at int64) string { return fmt.Sprintf("%s%010d", piecesOf(id), at) }

// sortOf returns the item's sort key.
func sortOf(it item) string {
	if sk, ok := it[sortKey].(*types.AttributeValueMemberS); ok {
		return sk.Value
	}
	return ""
}

func (l *Index) key(job, sort string) item {
	return item{partitionKey: text(l.options.Prefix + job), sortKey: text(sort)}
}

// stream is the item of a stream, and the end of its chain of pieces.
type stream struct {
	id       string
	info     joblog.Info
	fenced   bool
	moved    bool  // another store has its bytes
	followed int64 // a reader follows the stream until this time, in seconds since 1970
}

// closed reports whether the stream accepts no append. Only then its item has its size and checksum.
func (st stream) closed() bool { return st.fenced || st.info.Ended }

// openWrites returns the writes that create the stream and fence the previous stream. If old has no id, there is no
// previous stream.
func (l *Index) openWrites(s joblog.Stream, old stream) []types.TransactWriteItem {
	newFence, newStream := l.key(s.Job, fenceSort), l.key(s.Job, streamSort(s.Epoch))
	newFence["epoch"] = number(s.Epoch)
	newStream["id"], newStream["epoch"] = text(rand.Text()), number(s.Epoch)
	newStream["ended"], newStream["truncated"], newStream["fenced"] = boolean(false), boolean(false), boolean(false)
	first := &types.Put{TableName: &l.options.Table, Item: newFence, ConditionExpression: aws.String("attribute_not_exists(epoch)")}
	writes := []types.TransactWriteItem{{Put: first}, {Put: &types.Put{TableName: &l.options.Table, Item: newStream}}}
	if old.id == "" {
		return writes
	}
	first.ConditionExpression = aws.String("epoch = :fence")
	first.ExpressionAttributeValues = item{":fence": number(old.info.Stream.Epoch)}
	return append(writes, l.closeWrites(old, "SET fenced = :yes", item{":yes": boolean(true)})...)
}

// closeWrites returns the writes that close the stream, if it is not closed, and apply the update to its item.
func (l *Index) closeWrites(st stream, update string, values item) []types.TransactWriteItem {
	s := st.info.Stream
	up := &types.Update{TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)),
		UpdateExpression: &update, ConditionExpression: aws.String("id = :id"), ExpressionAttributeValues: values}
	values[":id"] = text(st.id)
	if st.closed() {
		return []types.TransactWriteItem{{Update: up}}
	}
	up.UpdateExpression = aws.String(update + ", #size = :size, crc = :crc")
	up.ExpressionAttributeNames = map[string]string{"#size": "size"}
	values[":size"], values[":crc"] = number(st.info.Size), number(int64(st.info.CRC32))
	return []types.TransactWriteItem{l.putPiece(s.Job, l.piece(st, nil)), {Update: up}}
}

// piece returns the item of the piece with data, which is at the end of the stream st.
func (l *Index) piece(st stream, data []byte) item {
	it := l.key(st.info.Stream.Job, pieceSort(st.id, st.info.Size))
	it["next"] = number(st.info.Size + int64(len(data)))
	it["crc"] = number(int64(checksum(st.info.CRC32, data)))
	it[AttrExpires] = number(l.options.Now().Add(l.options.Keep).Unix())
	l.codec.setBytes(it, data)
	return it
}

// freeKey is the condition of each put of a piece: no item has its key.
const freeKey = "attribute_not_exists(" + partitionKey + ")"

func (l *Index) putPiece(job string, it item) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: &l.options.Table, Item: it, ConditionExpression: aws.String(freeKey)}}
}

// put adds data to the end of the stream: one piece in one write, or several pieces in one transaction if data does not
// fit into one item. It returns errRefused if the stream has changed since it was read.
func (l *Index) put(ctx context.Context, st stream, data []byte) error {
	if it := l.piece(st, data); bytesSize(it) <= maxPiece {
		_, err := l.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &l.options.Table, Item: it, ConditionExpression: aws.String(freeKey)})
		if isRefused(err) || inConflict(err) {
			return errRefused
		}
		return err
	}
	var writes []types.TransactWriteItem
	for len(data) > 0 {
		n := min(len(data), maxPiece)
		writes = append(writes, l.putPiece(st.info.Stream.Job, l.piece(st, data[:n])))
		st.info.Size, st.info.CRC32 = st.info.Size+int64(n), checksum(st.info.CRC32, data[:n])
		data = data[n:]
	}
	return l.transact(ctx, writes...)
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

// note notes in the stream's item that a reader follows the stream until the given time, in seconds since 1970.
func (l *Index) note(ctx context.Context, st stream, until int64) error {
	s := st.info.Stream
	_, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)),
		UpdateExpression: aws.String("SET followed = :until"), ConditionExpression: aws.String("id = :id"),
		ExpressionAttributeValues: item{":id": text(st.id), ":until": number(until)},
	})
	return err
}

// cut notes in the open stream's item that it was cut.
func (l *Index) cut(ctx context.Context, st stream) error {
	s := st.info.Stream
	_, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)),
		UpdateExpression: aws.String("SET cut = :yes"), ConditionExpression: aws.String("id = :id AND ended = :no"),
		ExpressionAttributeValues: item{":id": text(st.id), ":yes": boolean(true), ":no": boolean(false)},
	})
	if isRefused(err) || inConflict(err) {
		return errRefused
	}
	return err
}

// The partition and sort key of a runner's budget.
const (
	budgetPrefix = "budget#"
	budgetSort   = "budget"
)

// account returns the rest of the runner's budget.
func (l *Index) account(ctx context.Context, runner string) (joblog.Account, error) {
	out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &l.options.Table, Key: l.key(budgetPrefix+runner, budgetSort), ConsistentRead: aws.Bool(true),
	})
	if err != nil || len(out.Item) == 0 {
		return joblog.Account{}, err
	}
	left, errLeft := integer(out.Item, "left")
	at, errAt := integer(out.Item, "at")
	return joblog.Account{Left: left, At: time.Unix(0, at)}, errors.Join(errLeft, errAt)
}

// spend replaces the account old by a. It returns errRefused if old is not stored any more.
func (l *Index) spend(ctx context.Context, runner string, old, a joblog.Account, expires time.Time) error {
	it := l.key(budgetPrefix+runner, budgetSort)
	it["left"], it["at"], it[AttrExpires] = number(a.Left), number(a.At.UnixNano()), number(expires.Unix())
	in := &dynamodb.PutItemInput{TableName: &l.options.Table, Item: it, ConditionExpression: aws.String(freeKey)}
	if !old.At.IsZero() {
		in.ConditionExpression = aws.String("#left = :left AND #at = :at")
		in.ExpressionAttributeNames = map[string]string{"#left": "left", "#at": "at"}
		in.ExpressionAttributeValues = item{":left": number(old.Left), ":at": number(old.At.UnixNano())}
	}
	_, err := l.client.PutItem(ctx, in)
	if isRefused(err) {
		return errRefused
	}
	return err
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

// inConflict reports whether err means that a transaction was using the item of a single write.
func inConflict(err error) bool {
	_, ok := errors.AsType[*types.TransactionConflictException](err)
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

// stream returns the stream, or joblog.ErrNotFound. One query reads the item of the stream and the two items before it: the
// fence, and the last piece, unless the job has other streams. DynamoDB bills them as one read unit, if they have at most 4 KB
// together.
func (l *Index) stream(ctx context.Context, s joblog.Stream) (stream, error) {
	var last []item
	err := l.query(ctx, s.Job, piecesFrom, streamSort(s.Epoch), 3, func(it item) (bool, error) {
		last = append(last, it)
		return len(last) < 3, nil
	})
	if err != nil {
		return stream{}, err
	}
	if len(last) == 0 || sortOf(last[0]) != streamSort(s.Epoch) {
		return stream{}, joblog.ErrNotFound
	}
	st, err := readStream(s.Job, last[0])
	if err != nil || st.closed() {
		return st, err
	}
	if end := last[len(last)-1]; strings.HasPrefix(sortOf(end), piecesOf(st.id)) {
		return st, st.endsAt(end)
	}
	return l.measured(ctx, st)
}

// item returns the stream's item as it is stored, or joblog.ErrNotFound: without size and checksum if the stream is open.
func (l *Index) item(ctx context.Context, s joblog.Stream, consistent bool) (stream, error) {
	out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &l.options.Table, Key: l.key(s.Job, streamSort(s.Epoch)), ConsistentRead: &consistent,
	})
	if err != nil {
		return stream{}, err
	}
	if len(out.Item) == 0 {
		return stream{}, joblog.ErrNotFound
	}
	return readStream(s.Job, out.Item)
}

// measured returns the stream with its size and checksum. If the stream is open, its last piece has them.
func (l *Index) measured(ctx context.Context, st stream) (stream, error) {
	if st.closed() {
		return st, nil
	}
	err := l.query(ctx, st.info.Stream.Job, pieceSort(st.id, 0), pieceSort(st.id, joblog.MaxStream), 1, func(it item) (bool, error) {
		return false, st.endsAt(it)
	})
	return st, err
}

// endsAt sets size and checksum of the open stream to those after its last piece.
func (st *stream) endsAt(piece item) error {
	next, errNext := integer(piece, "next")
	sum, errSum := integer(piece, "crc")
	st.info.Size, st.info.CRC32 = next, uint32(sum)
	return errors.Join(errNext, errSum)
}

func readStream(job string, it item) (stream, error) {
	var errs []error
	whole := func(name string) int64 { n, err := integer(it, name); errs = append(errs, err); return n }
	truth := func(name string) bool { b, ok := it[name].(*types.AttributeValueMemberBOOL); return ok && b.Value }
	st := stream{
		info:   joblog.Info{Stream: joblog.Stream{Job: job, Epoch: whole("epoch")}, Ended: truth("ended"), Truncated: truth("truncated"), Cut: truth("cut")},
		fenced: truth("fenced"), moved: truth("moved"),
	}
	st.info.Truncated = st.info.Truncated || st.info.Ended && st.info.Cut // End may have read the stream before the cut
	if st.closed() {
		st.info.Size, st.info.CRC32 = whole("size"), uint32(whole("crc"))
	}
	if _, ok := it["followed"]; ok {
		st.followed = whole("followed")
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

// query calls each for the items of the job's partition whose sort keys are between from and to, inclusive: for all of them,
// or with last > 0 for the last ones, from the end. It stops when each returns false or an error.
func (l *Index) query(ctx context.Context, job, from, to string, last int32, each func(item) (bool, error)) error {
	in := &dynamodb.QueryInput{
		TableName: &l.options.Table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(last == 0),
		KeyConditionExpression:    aws.String("pk = :job AND sk BETWEEN :from AND :to"),
		ExpressionAttributeValues: item{":job": text(l.options.Prefix + job), ":from": text(from), ":to": text(to)},
	}
	if last > 0 {
		in.Limit = &last
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
	data := make([]byte, 0, end-offset)
	add := func(it item) (bool, error) {
		next, err := integer(it, "next")
		if err != nil {
			return false, err
		}
		piece, err := l.codec.bytesOf(it)
		if err != nil {
			return false, err
		}
		start, at := next-int64(len(piece)), offset+int64(len(data))
		if at < start || at >= next {
			return false, errGap
		}
		data = append(data, piece[at-start:min(end-start, int64(len(piece)))]...)
		return offset+int64(len(data)) < end, nil
	}
	// The piece that contains the byte at offset may begin before offset.
	err := l.query(ctx, job, pieceSort(st.id, 0), pieceSort(st.id, offset), 1, func(it item) (bool, error) {
		_, err := add(it)
		return false, err
	})
	if at := offset + int64(len(data)); err == nil && at < end {
		err = l.query(ctx, job, pieceSort(st.id, at), pieceSort(st.id, end-1), 0, add)
	}
	if err == nil && int64(len(data)) != end-offset {
		err = errGap
	}
	return data, err
}

var errGap = errors.New("the stored pieces have a gap")

// streams returns a job's streams in the order of their epochs.
func (l *Index) streams(ctx context.Context, job string) (all []stream, err error) {
	err = l.query(ctx, job, streamSort(0), "s$", 0, func(it item) (bool, error) { // $ sorts after #
		st, err := readStream(job, it)
		all = append(all, st)
		return true, err
	})
	for i := range all {
		if err == nil {
			all[i], err = l.measured(ctx, all[i])
		}
	}
	return all, err
}

// remove removes the fence, the streams and every piece of the job.
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
	return l.removePieces(ctx, job, func(id string) bool { return !kept[id] })
}

// removePieces removes the pieces of the job for whose stream id the function of returns
// true.
func (l *Index) removePieces(ctx context.Context, job string, of func(id string) bool) error {
	var batch []types.WriteRequest
	err := l.query(ctx, job, piecesFrom, "c$", 0, func(it item) (bool, error) {
		sk := sortOf(it)
		if !of(sk[len(piecesFrom) : len(sk)-len("#0000000000")]) {
			return true, nil
		}
		batch = append(batch, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: l.key(job, sk)}})
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
