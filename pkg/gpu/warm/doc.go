// Package warm decides how much capacity is held ready: at what time of day, and within
// what price.
//
// A [Schedule] is a set of windows that recur, each with a share of the full amount; where
// windows overlap the greatest share counts. Starts are read off a wall clock in the zone of
// the window, so that a window at 07:00 opens at 07:00 in summer and in winter:
//
//   - A start that the clocks skip in spring happens at the moment of the change.
//   - A start that the clocks show twice in autumn happens the first time. Only a cron line
//     with every hour (*) happens both times, because it counts hours.
//   - A duration is elapsed time. A window of 12h ends twelve hours after it opened, whatever
//     the clocks did meanwhile.
//
// A window is open from its start, inclusive, to its end, exclusive, so that one that ends
// when the next begins leaves no gap.
//
// A [Budget] bounds the amount by a price. It is stable: what is held already counts at what
// it costs, more is only asked for if the rest of the money buys some, and the answer does
// not follow the offers of the hour up and down.
//
// The package has no clock. Callers pass the time in.
package warm
