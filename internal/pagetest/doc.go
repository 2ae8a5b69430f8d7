// Package pagetest runs what pages show to be typed into a shell, and compares what that prints with what the page
// shows.
//
// A console block of a page is a list of commands, each behind "$ ", with what they print. A command goes on in the
// next line behind a backslash or a pipe, and to the end of its here-document. Of a command with nothing under it the
// page shows nothing, and it has to end well.
//
// What varies from run to run is not compared: times, ages and durations, process ids, content versions, how far
// columns are apart, and what the page leaves out with "…": in a line any text, and as a line of its own any lines.
package pagetest
