// Package presence decides which items of a source are there, held or gone. It does no I/O, and has no clock.
//
// A listed item is there at once. An item that a complete list lacks is gone, unless a Suspicion holds it: the source
// lost data, or was away. There are two kinds of sources:
//
//   - Fold is for a source of sessions, which lists an item while it hears from it. After an outage it lists too little
//     until all items have registered again. So each earlier item may be missing for a while.
//   - Set is for a source that stores its items. Its complete list proves an absence, apart from items that it lost:
//     these stay until they are listed again, or until the suspicion ends.
//
// Whether a list is complete, and whether the source lost data, follows from its versions, nodes or sessions. Each
// source decides that, and reads again in doubt before it applies a list.
package presence
