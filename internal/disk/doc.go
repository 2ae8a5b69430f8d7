// Package disk stores records in files. A record is a frame with checksums (AppendFrame, Reader): damage loses one
// frame only, and a killed process leaves at most an incomplete frame at the end. File appends frames, Replace replaces
// a whole file, and Lock keeps other processes out of a directory.
package disk
