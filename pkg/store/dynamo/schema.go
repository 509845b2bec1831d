package dynamo

import "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

// The table's schema, for the code that creates the table. All six key attributes have type
// S (string), so the console shows them as readable text and accepts them in a query. Keys
// are UTF-8 by engine.CheckKey. DynamoDB orders type S by the bytes of its UTF-8, so type B
// would have no advantage. Both indexes are global and project KEYS_ONLY. An index contains
// only the items that have both key attributes of the index. Names are short because
// DynamoDB counts them in the size of every item.
const (
	AttrPartition = "pk" // string, partition key of the table
	AttrSort      = "sk" // string, sort key of the table

	IndexList         = "list" // global secondary index
	AttrListPartition = "lpk"  // string, partition key of the index
	AttrListSort      = "lsk"  // string, sort key of the index

	IndexDue         = "due" // global secondary index
	AttrDuePartition = "dpk" // string, partition key of the index
	AttrDueSort      = "dsk" // string, sort key of the index

	AttrVersion = "v" // number: the item's version
	AttrToken   = "t" // string: token of the commit that wrote the item
	AttrBody    = "b" // binary: the item's body
	AttrExpires = "x" // number, seconds since 1970: the table's time-to-live attribute
	AttrNote    = "n" // binary: what the commit adds for the readers of the stream
)

// StreamView is the content of a stream record. Without the old image, a renewed lease
// looks like a job that has just started.
const StreamView = types.StreamViewTypeNewAndOldImages
