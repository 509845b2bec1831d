package dynamo

import "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

// The table's schema, for the code that creates the table. All six key attributes have type
// S (string), so the console shows them as readable text and accepts them in a query. Keys
// are UTF-8 by engine.CheckKey. DynamoDB orders type S by the bytes of its UTF-8, so type B
// would have no advantage. Both indexes are global, project KEYS_ONLY, and hold only the
// items that have both of their attributes. Names are short because DynamoDB counts them in
// the size of every item.
const (
	AttrPartition = "pk" // string, partition key of the table
	AttrSort      = "sk" // string, sort key of the table

	IndexList         = "list" // global secondary index
	AttrListPartition = "lpk"  // string, its partition key
	AttrListSort      = "lsk"  // string, its sort key

	IndexDue         = "due" // global secondary index
	AttrDuePartition = "dpk" // string, its partition key
	AttrDueSort      = "dsk" // string, its sort key

	AttrVersion = "v" // number
	AttrToken   = "t" // string
	AttrBody    = "b" // binary
	AttrExpires = "x" // number, seconds since 1970: the table's time-to-live attribute
)

// StreamView is the content of a stream record. Without the old image, a renewed lease
// looks like a job that has just started.
const StreamView = types.StreamViewTypeNewAndOldImages
